"""Metadata, statistics and gauges of a loaded model, as frozen values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.core.config import ModelConfig, ModelInput, ModelOutput
from penstock.core.tensor import DataType
from penstock.inflight.statistics import Statistics
from penstock.metrics.exposition import Labels
from penstock.metrics.histogram import Histogram
from penstock.metrics.series_name import split_series_name

_ALIKE = ("_usage", "_info", "fraction", "tokens_per")


@dataclass(frozen=True, slots=True)
class TensorMetadata:
    """Name, datatype and shape of a tensor; the batch dimension, if any, is -1."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """Tensors and platform of a served version, and all versions served (G-06)."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


@dataclass(frozen=True, slots=True)
class ModelStatistics:
    """Name, version and counters of a served model version.

    `tags` are the configuration's labels for its metrics (C-31), `load_seconds` the
    duration of the load (M-19). `gpu` is the CUDA ordinal of the GPU that all its instances are
    on, `None` if there is no such; `gpu_uuid` names that in metrics, and `namespace` the model's
    repository, where models have namespaces (ME-02).
    """

    name: str
    version: str
    statistics: Statistics
    tags: Mapping[str, str] = field(default_factory=dict)
    load_seconds: float = 0.0
    gpu: int | None = None
    gpu_uuid: str = ""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class InstanceProcess:
    """The process of an instance: `pid` is `None` while none serves, `restarts` how often another
    one was started in its place.
    """

    model: str
    version: str
    instance: str
    pid: int | None
    restarts: int


@dataclass(frozen=True, slots=True)
class EngineMetric:
    """Something that a backend reports about itself.

    The name may have labels: `jobs{kind="short",place="queue"}`.
    """

    name: str
    model: str
    version: str

    @property
    def family(self) -> str:
        """The name without labels."""
        return split_series_name(self.name)[0]

    @property
    def labels(self) -> Labels:
        """The labels that the name has."""
        return split_series_name(self.name)[1]


@dataclass(frozen=True, slots=True)
class EngineHistogram(EngineMetric):
    """A histogram of a backend's own."""

    histogram: Histogram


@dataclass(frozen=True, slots=True)
class Gauge(EngineMetric):
    """A number of a backend's own; a counter if `name` ends with `_total`."""

    value: float


def is_alike(name: str) -> bool:
    """Whether a number of this name is a share, or the same for each instance: no sum of them."""
    family, labels = split_series_name(name)
    return any(text.endswith(_ALIKE) for text in (family, *(value for _, value in labels)))


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


def _tensors(
    tensors: Iterable[ModelInput] | Iterable[ModelOutput], batches: bool
) -> tuple[TensorMetadata, ...]:
    batch = (-1,) if batches else ()
    return tuple(
        TensorMetadata(t.name, (t.data_type or DataType.INVALID).value, (*batch, *t.dims))
        for t in tensors
    )
