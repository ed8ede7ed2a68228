"""Rules about what a model is: name, backend, batch size, and what is asked of the server."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from penstock.core.config import MetricControl, ModelConfig
from penstock.models.config.defaults import KNOWN_BACKENDS


def backend_problems(config: ModelConfig) -> Iterator[str]:
    """Name, backend and platform belong together; the batch size is a size."""
    name = config.name
    if not name:
        yield "model configuration must specify 'name'"
    if not config.backend and not config.is_ensemble:
        yield f"unexpected platform type '{config.platform}' for {name}"
    if config.backend and config.is_ensemble:
        yield f"Ensemble model '{name}' must have platform type 'ensemble' and empty backend type"
    platforms = [p for k in KNOWN_BACKENDS if k.backend == config.backend for p in k.platforms]
    if platforms and config.platform not in platforms:
        yield f"unexpected 'platform' and 'backend' pair, got:{config.platform}, {config.backend}"
    if config.max_batch_size < 0:
        yield f"'max_batch_size' must be non-negative value for {name}"
    if config.version_policy is None:
        yield f"must specify 'version policy' for {name}"


def cache_problems(config: ModelConfig) -> Iterator[str]:
    """Only models that answer once, and by the request alone, can have their responses kept."""
    if config.response_cache is None or not config.response_cache.enable:
        return
    refusal = f"Response Cache does not currently support model {config.name} with"
    if config.sequence_batching is not None:
        yield f"{refusal} sequence batching scheduler. Please disable the response cache."
    if config.decoupled:
        yield f"{refusal} 'decoupled' transaction policy. Please disable the response cache."


def metric_problems(config: ModelConfig) -> Iterator[str]:
    """A change to a metric says which one and what."""
    if config.model_metrics is not None:
        for control in config.model_metrics.metric_control:
            yield from _control_problems(control)


def _control_problems(control: MetricControl) -> Iterator[str]:
    if control.metric_identifier is None:
        yield "metric control must specify 'metric_identifier'"
    elif not control.metric_identifier.family:
        yield "metric identifier must specify non-empty 'family'"
    if control.histogram_options is None:
        yield "metric control must specify 'histogram_options'"
    elif not (buckets := control.histogram_options.buckets):
        yield "histogram options must specify non-empty 'buckets'"
    elif not all(low < high for low, high in pairwise(buckets)):
        yield "histogram options must specify rising 'buckets'"
