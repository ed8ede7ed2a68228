"""`TensorRtGraph`: the tensors of a plan as batches have them, and the instance that runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.backend import Array, InvalidRequestError, Tensor
from penstock_backends.tensor_models import Graph
from penstock_backends.tensorrt.cuda import address_of
from penstock_backends.tensorrt.execution import Execution
from penstock_backends.tensorrt.plan import Plan, PlanTensor, Shape


class TensorRtGraph(Graph):
    """A plan for batches of as many `rows`, or 0, and its execution, if it is to run.

    Shape tensors of a plan have the batch size as their first value; requests have them without,
    once in each row. Tensors of formats that fill up a dimension are as long as in memory.
    """

    engine = "TensorRT"

    def __init__(
        self,
        plan: Plan,
        rows: int,
        execution: Execution | None = None,
        coalesces: bool = False,
        owner: object = None,
    ) -> None:
        self.plan, self.rows = plan, rows
        self._batched = rows > 0
        self._execution = execution
        self._coalesces = coalesces
        self._owner = owner  # of the plan, which others share
        described = {name: one.described(self._batched) for name, one in plan.tensors.items()}
        self.inputs = {name: described[name] for name in plan.inputs}
        self.outputs = {n: one for n, one in described.items() if n not in plan.inputs}
        self.defaults = {}

    def array(self, name: str, tensor: Tensor) -> Array:
        known = self.plan.inputs.get(name)
        if known is not None and known.filled >= 0:
            return _stored(known, tensor)
        array = tensor.numpy()
        if known is not None and known.is_shape and self._batched and (array != array[:1]).any():
            raise InvalidRequestError(
                f"shape tensor for input '{name}' must have the same values in each row"
            )
        return array

    def joined(self, name: str, arrays: Sequence[Array]) -> Array:
        """The rows in the memory that the GPU copies from.

        Rows that lie side by side in the memory of clients stay there, if the server is told so.
        """
        if self._coalesces and (whole := _side_by_side(arrays)) is not None:
            return whole
        assert self._execution is not None
        shape = (sum(map(len, arrays)), *arrays[0].shape[1:])
        alike = all(array.shape[1:] == shape[1:] for array in arrays)
        room = self._execution.room(name, shape) if alike else None
        return np.concatenate(arrays, out=room, casting="no")

    def run(self, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
        assert self._execution is not None
        asked = {name: self._asked(name, array) for name, array in feeds.items()}
        found = self._execution.run(feeds, asked, names)
        return [
            # Its values once in each row of the batch, whose size comes first.
            np.tile(array[1:], (int(array[0]), 1))
            if self._batched and name in self.plan.shape_tensors
            else array
            for name, array in zip(names, found, strict=True)
        ]

    def _asked(self, name: str, array: Array) -> Shape:
        """The shape of an input, or the values of a shape tensor: first the batch size."""
        known = self.plan.inputs[name]
        if not known.is_shape:
            return known.logical(array.shape)
        values = (len(array), *array[0]) if self._batched else (*array.reshape(-1),)
        return tuple(map(int, values))

    @property
    def failed(self) -> bool:
        """Whether the GPU has failed, and runs nothing any more."""
        return self._execution is not None and self._execution.failed

    def close(self) -> None:
        if self._execution is not None:
            self._execution.close()
        self._execution = None


def _stored(known: PlanTensor, tensor: Tensor) -> Array:
    """A tensor that is longer than its shape says, in the shape that it has in memory."""
    expected = known.size(tensor.shape)
    if tensor.nbytes != expected:
        raise InvalidRequestError(
            f"input byte size mismatch for input '{known.name}', whose dimension {known.filled} is"
            f" filled up to multiples of {known.components}. Expected {expected}, got"
            f" {tensor.nbytes}"
        )
    return np.frombuffer(tensor.buffer, tensor.datatype.numpy).reshape(known.stored(tensor.shape))


def _side_by_side(arrays: Sequence[Array]) -> Array | None:
    """One array over all, where each begins in memory where the one before it ends."""
    first = arrays[0]
    end = address_of(first)
    for array in arrays:
        alike = array.shape[1:] == first.shape[1:] and array.flags.c_contiguous
        if address_of(array) != end or not alike:
            return None
        end += array.nbytes
    rows = sum(map(len, arrays))
    shape = (rows, *first.shape[1:])
    return np.lib.stride_tricks.as_strided(first, shape, first.strides, writeable=False)
