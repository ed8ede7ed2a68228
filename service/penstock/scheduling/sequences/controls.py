"""Control tensors: signals to a model about the sequence of a request (S-11, S-12)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from penstock.core.config import Control, ControlKind, SequenceBatching
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor

_PAIRS = (
    ("int32_false_true", DataType.INT32),
    ("fp32_false_true", DataType.FP32),
    ("bool_false_true", DataType.BOOL),
)


@dataclass(frozen=True, slots=True)
class IdControl:
    """The control tensor for the correlation id: its name, and a type of integers or BYTES."""

    name: str
    datatype: DataType

    @property
    def takes_text(self) -> bool:
        return self.datatype is DataType.BYTES

    def mismatch(self, id: int | str) -> DataType | None:
        """The datatype of an id of the other kind; `None` if the tensor can hold it (S-12)."""
        if isinstance(id, str) is self.takes_text:
            return None
        return DataType.BYTES if isinstance(id, str) else DataType.UINT64

    def tensor(self, id: int | str, shape: tuple[int, ...]) -> Tensor:
        """An id that it can hold as a tensor of one element; numbers are truncated to its size."""
        if isinstance(id, str):
            return Tensor.from_strings([id], shape)
        size = self.datatype.itemsize
        truncated = (id % (1 << 8 * size)).to_bytes(size, "little")
        return Tensor(self.datatype, shape, truncated)

    def empty(self, shape: tuple[int, ...]) -> Tensor:
        """The tensor where there is no sequence."""
        return self.tensor("" if self.takes_text else 0, shape)


class Controls:
    """Makes the control tensors of one model, each of one element.

    For `batched` models they have a batch dimension of one row.
    """

    def __init__(self, batching: SequenceBatching, *, batched: bool) -> None:
        self._shape = (1, 1) if batched else (1,)
        named = list(_named(batching))
        self.id = next(
            (
                IdControl(name, control.data_type or DataType.UINT64)
                for name, control in named
                if control.kind is ControlKind.CONTROL_SEQUENCE_CORRID
            ),
            None,
        )
        signals = [
            (name, control)
            for name, control in named
            if control.kind is not ControlKind.CONTROL_SEQUENCE_CORRID
        ]
        self._signals = {
            (start, end): self._signal_tensors(signals, start=start, end=end, ready=True)
            for start in (False, True)
            for end in (False, True)
        }
        self._not_ready = self._signal_tensors(signals, start=False, end=False, ready=False)
        if self.id is not None:
            self._not_ready[self.id.name] = self.id.empty(self._shape)

    def tensors(self, request: InferenceRequest) -> Mapping[str, Tensor]:
        """The control tensors of a request."""
        signals = self._signals[request.sequence_start, request.sequence_end]
        if self.id is None:
            return signals
        return {**signals, self.id.name: self.id.tensor(request.correlation_id, self._shape)}

    def not_ready(self) -> Mapping[str, Tensor]:
        """The control tensors of a row whose sequence has no request in this batch."""
        return self._not_ready

    def _signal_tensors(
        self, signals: list[tuple[str, Control]], **signals_on: bool
    ) -> dict[str, Tensor]:
        return {name: self._signal(control, signals_on) for name, control in signals}

    def _signal(self, control: Control, signals_on: Mapping[str, bool]) -> Tensor:
        signal = control.kind.removeprefix("CONTROL_SEQUENCE_").lower()
        field, datatype = next((f, t) for f, t in _PAIRS if getattr(control, f))
        value = getattr(control, field)[signals_on[signal]]
        return Tensor.from_numpy(np.full(self._shape, value, datatype.numpy))


def _named(batching: SequenceBatching) -> Iterator[tuple[str, Control]]:
    for tensor in batching.control_input:
        for control in tensor.control:
            yield tensor.name, control
