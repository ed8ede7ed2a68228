"""Rules about a model as a whole: name, backend, batch, parameters, instances, cache, metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from penstock.core.config import InstanceGroup, InstanceKind, MetricControl, ModelConfig
from penstock.models.config.defaults import KNOWN_BACKENDS
from penstock.models.config.own_parameters import unknown_parameter


def backend_problems(config: ModelConfig) -> Iterator[str]:
    """Name, backend and platform are consistent; the batch size is not negative."""
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


def parameter_problems(config: ModelConfig) -> Iterator[str]:
    """Parameters that begin `penstock.` are known ones."""
    for name in config.parameters:
        if problem := unknown_parameter(name):
            yield f"model '{config.name}': {problem}"


def cache_problems(config: ModelConfig) -> Iterator[str]:
    """Only responses of stateless models with one response a request can be cached."""
    if config.response_cache is None or not config.response_cache.enable:
        return
    refusal = f"Response Cache does not currently support model {config.name} with"
    if config.sequence_batching is not None:
        yield f"{refusal} sequence batching scheduler. Please disable the response cache."
    if config.decoupled:
        yield f"{refusal} 'decoupled' transaction policy. Please disable the response cache."


def metric_problems(config: ModelConfig) -> Iterator[str]:
    """A metric control names the metric and its options."""
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


def instance_problems(config: ModelConfig, gpus: Sequence[int]) -> Iterator[str]:
    """Groups name the devices that their kind needs, and only available ones."""
    if config.ensemble_scheduling is not None:
        return
    if not config.instance_group:
        yield f"must specify one or more 'instance group's for {config.name}"
    for group in config.instance_group:
        for problem in _group_problems(group, config.platform, gpus):
            yield f"instance group {group.name} of model {config.name} {problem}"


def _group_problems(group: InstanceGroup, platform: str, gpus: Sequence[int]) -> Iterator[str]:
    if group.kind is InstanceKind.KIND_GPU:
        yield from _device_problems(group, gpus)
    elif group.kind is InstanceKind.KIND_AUTO:
        yield "has unexpected kind KIND_AUTO"
    elif group.gpus:
        yield f"has kind {group.kind} but specifies one or more GPUs"
    if group.profile and platform != "tensorrt_plan":
        yield (
            f"and platform {platform}specifies profile field "
            "which is only supported for TensorRT models"
        )


_WITHOUT_GPUS = (
    "; write 'kind: KIND_CPU' without 'gpus' in its instance_group, or start the server with"
    " --cpu-only (or TRITON_SERVER_CPU_ONLY=1), which serves such groups on the CPU"
)
"""What to do where the machine has none."""


def _device_problems(group: InstanceGroup, gpus: Sequence[int]) -> Iterator[str]:
    if not group.gpus:
        problem = "specifies no GPUs" if gpus else f"no GPUs are available{_WITHOUT_GPUS}"
        yield f"has kind KIND_GPU but {problem}"
    for device in group.gpus:
        if device not in gpus:
            yield (
                f"specifies invalid or unsupported gpu id {device}. GPUs with at least the "
                "minimum required CUDA compute compatibility of 6.000000 are: "
                f"{', '.join(map(str, gpus)) or f'none{_WITHOUT_GPUS}'}"
            )
