"""Scheduler settings: dynamic batching, sequence batching, ensembles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from penstock.core.config.schema import ConfigPart, Int32, Int64, UInt32, UInt64
from penstock.core.full_names import full_name
from penstock.core.tensor import DataType


class TimeoutAction(StrEnum):
    """The action on a request whose queue timeout expires; `DELAY` moves it behind the others."""

    REJECT = "REJECT"
    DELAY = "DELAY"


@dataclass(frozen=True, slots=True)
class QueuePolicy(ConfigPart):
    """Limits of a queue: timeout and size; 0 is no limit."""

    timeout_action: TimeoutAction = TimeoutAction.REJECT
    default_timeout_microseconds: UInt64 = 0
    allow_timeout_override: bool = False
    max_queue_size: UInt32 = 0


@dataclass(frozen=True, slots=True)
class DynamicBatching(ConfigPart):
    """Requests that arrive close together execute as one batch."""

    preferred_batch_size: tuple[Int32, ...] = ()
    max_queue_delay_microseconds: UInt64 = 0
    preserve_ordering: bool = False
    priority_levels: UInt64 = 0
    default_priority_level: UInt64 = 0
    default_queue_policy: QueuePolicy | None = None
    priority_queue_policy: Mapping[UInt64, QueuePolicy] = field(default_factory=dict)

    @property
    def max_queue_delay(self) -> float:
        """How long a request may wait for others to batch with, in seconds."""
        return self.max_queue_delay_microseconds / 1e6


class ControlKind(StrEnum):
    """The signal that a control tensor carries to the model."""

    CONTROL_SEQUENCE_START = "CONTROL_SEQUENCE_START"
    CONTROL_SEQUENCE_READY = "CONTROL_SEQUENCE_READY"
    CONTROL_SEQUENCE_END = "CONTROL_SEQUENCE_END"
    CONTROL_SEQUENCE_CORRID = "CONTROL_SEQUENCE_CORRID"


@dataclass(frozen=True, slots=True)
class Control(ConfigPart):
    """A signal and its encoding: one of the false/true pairs, or the correlation id's type."""

    kind: ControlKind = ControlKind.CONTROL_SEQUENCE_START
    int32_false_true: tuple[Int32, ...] = ()
    fp32_false_true: tuple[float, ...] = ()
    bool_false_true: tuple[bool, ...] = ()
    data_type: DataType | None = None


@dataclass(frozen=True, slots=True)
class ControlInput(ConfigPart):
    """An input tensor that carries control signals."""

    name: str = ""
    control: tuple[Control, ...] = ()


@dataclass(frozen=True, slots=True)
class InitialState(ConfigPart):
    """The value of an implicit state when a sequence starts."""

    ONEOFS = (("zero_data", "data_file"),)

    data_type: DataType | None = None
    dims: tuple[Int64, ...] = ()
    zero_data: bool | None = None
    data_file: str | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class SequenceState(ConfigPart):
    """An implicit state: a tensor that the server keeps between the requests of a sequence."""

    input_name: str = ""
    output_name: str = ""
    data_type: DataType | None = None
    dims: tuple[Int64, ...] = ()
    initial_state: tuple[InitialState, ...] = ()
    use_same_buffer_for_input_output: bool = False
    use_growable_memory: bool = False


@dataclass(frozen=True, slots=True)
class StrategyDirect(ConfigPart):
    """Each sequence owns a batch slot of one instance until it ends."""

    max_queue_delay_microseconds: UInt64 = 0
    minimum_slot_utilization: float = 0.0


@dataclass(frozen=True, slots=True)
class StrategyOldest(ConfigPart):
    """The oldest requests of the active sequences form dynamic batches."""

    max_candidate_sequences: Int32 = 0
    preferred_batch_size: tuple[Int32, ...] = ()
    max_queue_delay_microseconds: UInt64 = 0
    preserve_ordering: bool = False


@dataclass(frozen=True, slots=True)
class SequenceBatching(ConfigPart):
    """Requests with the same correlation id reach the same instance, in order."""

    ONEOFS = (("direct", "oldest"),)

    direct: StrategyDirect | None = None
    oldest: StrategyOldest | None = None
    max_sequence_idle_microseconds: UInt64 = 0
    control_input: tuple[ControlInput, ...] = ()
    state: tuple[SequenceState, ...] = ()
    iterative_sequence: bool = False


@dataclass(frozen=True, slots=True)
class EnsembleStep(ConfigPart):
    """One model of an ensemble; the maps are from names of its tensors to those of the ensemble."""

    model_name: str = ""
    model_version: Int64 = 0
    input_map: Mapping[str, str] = field(default_factory=dict)
    output_map: Mapping[str, str] = field(default_factory=dict)
    model_namespace: str = ""

    @property
    def model(self) -> str:
        """The name by which the server knows the model, with its namespace if it has one."""
        return full_name(self.model_namespace, self.model_name)


@dataclass(frozen=True, slots=True)
class EnsembleScheduling(ConfigPart):
    """A graph of models whose steps are connected by the names of tensors.

    At most `max_inflight_requests` calls of one step run at a time; 0 is no bound.
    """

    RECENT = ("max_inflight_requests",)

    step: tuple[EnsembleStep, ...] = ()
    max_inflight_requests: UInt32 = 0
