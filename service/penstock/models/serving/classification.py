"""The classification extension: returns the top classes of an output, with their labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from penstock.core.errors import InferenceError, InternalError, InvalidRequestError
from penstock.core.request import InferenceResponse
from penstock.core.tensor import Array, DataType, Tensor
from penstock.inflight.latencies import Transform

_MOST_ELEMENTS = 1_000_000
_NO_CLASSES = (DataType.BOOL, DataType.BYTES, DataType.FP16, DataType.BF16)


@dataclass(frozen=True, slots=True)
class Classifier:
    """Classifies the outputs of one model; `labels` are by output, in order of the index."""

    batched: bool
    labels: Mapping[str, Sequence[bytes]]

    def transform(self, classes: Mapping[str, int], former: Transform | None) -> Transform:
        """A transform, after `former`, that reduces outputs in `classes` to so many top classes."""

        def classified(response: InferenceResponse) -> InferenceResponse:
            if former is not None:
                response = former(response)
            try:
                outputs = {
                    name: self._classified(name, t, classes) for name, t in response.outputs.items()
                }
            except InferenceError as error:
                return InferenceResponse(final=response.final, error=error)
            return response.with_outputs(outputs)

        return classified

    def _classified(self, name: str, tensor: Tensor, classes: Mapping[str, int]) -> Tensor:
        count = classes.get(name)
        if count is None:
            return tensor
        return top_classes(tensor, count, self.labels.get(name, ()), self.batched)


def top_classes(tensor: Tensor, count: int, labels: Sequence[bytes], batched: bool) -> Tensor:
    """A BYTES tensor of shape `[batch,] count`: `value:index` or `value:index:label`, best first.

    A row has no more classes than elements. Raises `InvalidRequestError` (X-01 to X-04).
    """
    if tensor.datatype in _NO_CLASSES:
        raise InvalidRequestError(
            "class result not available for output due to unsupported type"
            f" '{tensor.datatype.value}'"
        )
    batch, dims = (tensor.shape[:1], tensor.shape[1:]) if batched else ((), tensor.shape)
    length = prod(dims)
    if length > _MOST_ELEMENTS:
        raise InvalidRequestError("classification output tensor too large")
    count = min(count, length)
    rows = _elements(tensor).reshape(prod(batch), length)
    texts = (text for row in rows for text in _texts(row, count, labels))
    return Tensor.from_strings(texts, (*batch, count))


def _elements(tensor: Tensor) -> Array:
    try:
        return tensor.numpy()
    except ValueError as error:  # the data does not match the shape
        raise InternalError(
            f"the data of the output tensor does not fit its shape {list(tensor.shape)}"
        ) from error


def _texts(row: Array, count: int, labels: Sequence[bytes]) -> Iterator[bytes]:
    for index in _highest(row, count):
        value = row[index]
        text = b"%.6f" % value if row.dtype.kind == "f" else b"%d" % value
        label = labels[index] if index < len(labels) else b""
        yield b"%b:%d:%b" % (text, index, label) if label else b"%b:%d" % (text, index)


def _highest(row: Array, count: int) -> Array:
    """The indexes of the highest values, best first; equal values in order of index."""
    if not count:
        return np.empty(0, np.intp)
    # Sort only the candidates: a row may have a million elements.
    lowest = np.partition(row, -count)[-count]
    candidates = np.flatnonzero(~(row < lowest))
    ascending = np.argsort(row[candidates][::-1], kind="stable")
    return candidates[::-1][ascending][::-1][:count]
