"""Optimization hints to backends; most concern one framework only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.core.config.schema import ConfigPart, Int32, Int64, UInt32


class ModelPriority(StrEnum):
    """Priority of the model's work on its device."""

    PRIORITY_DEFAULT = "PRIORITY_DEFAULT"
    PRIORITY_MAX = "PRIORITY_MAX"
    PRIORITY_MIN = "PRIORITY_MIN"


@dataclass(frozen=True, slots=True)
class GraphOptimization(ConfigPart):
    """How hard the framework optimises the graph: 0 its default, -1 less, 1 and above more."""

    level: Int32 = 0


@dataclass(frozen=True, slots=True)
class GraphShape(ConfigPart):
    """The shape of one input for which a CUDA graph is captured."""

    dim: tuple[Int64, ...] = ()


@dataclass(frozen=True, slots=True)
class GraphLowerBound(ConfigPart):
    """The smallest batch and shapes that may use a CUDA graph."""

    batch_size: Int32 = 0
    input: Mapping[str, GraphShape] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GraphSpec(ConfigPart):
    """A batch size and input shapes for which a CUDA graph is captured."""

    batch_size: Int32 = 0
    input: Mapping[str, GraphShape] = field(default_factory=dict)
    graph_lower_bound: GraphLowerBound | None = None


@dataclass(frozen=True, slots=True)
class Cuda(ConfigPart):
    """CUDA settings."""

    graphs: bool = False
    busy_wait_events: bool = False
    graph_spec: tuple[GraphSpec, ...] = ()
    output_copy_stream: bool = False


@dataclass(frozen=True, slots=True)
class Accelerator(ConfigPart):
    """An execution provider and its options."""

    name: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExecutionAccelerators(ConfigPart):
    """Execution providers in order of preference."""

    gpu_execution_accelerator: tuple[Accelerator, ...] = ()
    cpu_execution_accelerator: tuple[Accelerator, ...] = ()


@dataclass(frozen=True, slots=True)
class PinnedMemory(ConfigPart):
    """Whether copies between host and device go through page-locked buffers."""

    enable: bool = False


@dataclass(frozen=True, slots=True)
class Optimization(ConfigPart):
    """Hints to the backend."""

    graph: GraphOptimization | None = None
    priority: ModelPriority = ModelPriority.PRIORITY_DEFAULT
    cuda: Cuda | None = None
    execution_accelerators: ExecutionAccelerators | None = None
    input_pinned_memory: PinnedMemory | None = None
    output_pinned_memory: PinnedMemory | None = None
    gather_kernel_buffer_threshold: UInt32 = 0
    eager_batching: bool = False
