"""Control tensors: signals to a model about the sequence of a request (S-11, S-12)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import blake2b

import numpy as np

from penstock.core.config import Control, ControlKind, SequenceBatching
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor

_PAIRS = (
    ("int32_false_true", DataType.INT32),
    ("fp32_false_true", DataType.FP32),
    ("bool_false_true", DataType.BOOL),
)


class Controls:
    """Makes the control tensors of one model, each of one element.

    For `batched` models they have a batch dimension of one row.
    """

    def __init__(self, batching: SequenceBatching, *, batched: bool) -> None:
        self._shape = (1, 1) if batched else (1,)
        named = list(_named(batching))
        self._ids = [
            (name, control.data_type or DataType.UINT64)
            for name, control in named
            if control.kind is ControlKind.CONTROL_SEQUENCE_CORRID
        ]
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
        self._not_ready = {
            **self._signal_tensors(signals, start=False, end=False, ready=False),
            **self._id_tensors(0),
        }

    def tensors(self, request: InferenceRequest) -> Mapping[str, Tensor]:
        """The control tensors of a request."""
        signals = self._signals[request.sequence_start, request.sequence_end]
        if not self._ids:
            return signals
        return {**signals, **self._id_tensors(request.correlation_id)}

    def not_ready(self) -> Mapping[str, Tensor]:
        """The control tensors of a row whose sequence has no request in this batch."""
        return self._not_ready

    def _id_tensors(self, id: int | str) -> dict[str, Tensor]:
        return {name: self._id_tensor(datatype, id) for name, datatype in self._ids}

    def _id_tensor(self, datatype: DataType, id: int | str) -> Tensor:
        if datatype is DataType.BYTES:
            return Tensor.from_strings([str(id) if id else ""], self._shape)
        size = datatype.itemsize
        number = id if isinstance(id, int) else number_of(id)
        truncated = (number % (1 << 8 * size)).to_bytes(size, "little")
        return Tensor(datatype, self._shape, truncated)

    def _signal_tensors(
        self, signals: list[tuple[str, Control]], **signals_on: bool
    ) -> dict[str, Tensor]:
        return {name: self._signal(control, signals_on) for name, control in signals}

    def _signal(self, control: Control, signals_on: Mapping[str, bool]) -> Tensor:
        signal = control.kind.removeprefix("CONTROL_SEQUENCE_").lower()
        field, datatype = next((f, t) for f, t in _PAIRS if getattr(control, f))
        value = getattr(control, field)[signals_on[signal]]
        return Tensor.from_numpy(np.full(self._shape, value, datatype.numpy))


def number_of(id: str) -> int:
    """A stable hash of a text id, for models that take numbers."""
    return int.from_bytes(blake2b(id.encode(), digest_size=8).digest(), "little")


def _named(batching: SequenceBatching) -> Iterator[tuple[str, Control]]:
    for tensor in batching.control_input:
        for control in tensor.control:
            yield tensor.name, control
