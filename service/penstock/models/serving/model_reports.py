"""What a model tells of itself: its tensors, and what its instances report, put together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.core.config import ModelConfig, ModelInput, ModelOutput
from penstock.core.tensor import DataType
from penstock.metrics.histogram import Histogram
from penstock.models.serving.answers import ModelMetadata, TensorMetadata, is_alike
from penstock.models.serving.instance import ModelInstance


def model_metadata(config: ModelConfig, versions: Iterable[int]) -> ModelMetadata:
    """Tensors and platform of a model, with the `versions` that are served."""
    batches = config.max_batch_size > 0
    return ModelMetadata(
        name=config.name,
        versions=tuple(map(str, versions)),
        platform=config.platform or config.backend,
        inputs=_tensors(config.input, batches),
        outputs=_tensors(config.output, batches),
    )


def metrics_together(instances: Sequence[ModelInstance]) -> list[tuple[str, float]]:
    """The instances' metrics by name: their sums, of shares and what is alike the mean."""
    found: dict[str, list[float]] = {}
    for instance in instances:
        for name, value in instance.metrics().items():
            found.setdefault(name, []).append(value)
    return [
        (name, sum(values) / len(values) if is_alike(name) else sum(values))
        for name, values in found.items()
    ]


def histograms_together(instances: Sequence[ModelInstance]) -> list[tuple[str, Histogram]]:
    """The instances' histograms, added up by name."""
    states: dict[str, list[Any]] = {}
    for instance in instances:
        for name, state in instance.histograms().items():
            states.setdefault(name, []).append(state)
    return [(name, Histogram.merged(found)) for name, found in states.items()]


def _tensors(
    tensors: Iterable[ModelInput] | Iterable[ModelOutput], batches: bool
) -> tuple[TensorMetadata, ...]:
    batch = (-1,) if batches else ()
    return tuple(
        TensorMetadata(t.name, (t.data_type or DataType.INVALID).value, (*batch, *t.dims))
        for t in tensors
    )
