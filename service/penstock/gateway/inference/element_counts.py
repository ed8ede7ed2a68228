"""BYTES tensors of many elements, which are counted in turns before their request is admitted."""

from __future__ import annotations

from penstock.core.errors import InvalidRequestError, shortened
from penstock.core.request import InferenceRequest
from penstock.core.request_limits import FEW_ELEMENTS, elements_in, too_many_elements
from penstock.core.tensor import DataType, Tensor, count_in_steps
from penstock.core.turns import Turns


class ElementCounts:
    """Counts elements; a tensor may have `most`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._turns = Turns()

    def uncounted(self, request: InferenceRequest) -> list[tuple[str, Tensor]]:
        """The inputs that take long to count. Raises `InvalidRequestError` for too many."""
        found: list[tuple[str, Tensor]] = []
        for name, tensor in request.inputs.items():
            if tensor.datatype is not DataType.BYTES or tensor.count is not None:
                continue
            if tensor.nbytes <= 4 * FEW_ELEMENTS:
                continue
            expected = elements_in(tensor.shape, self._most)
            if expected > self._most:
                where = f"'{shortened(name)}' for model '{shortened(request.model_name)}'"
                raise too_many_elements(where, self._most)
            if expected > FEW_ELEMENTS:
                found.append((name, tensor))
        return found

    async def count(self, inputs: list[tuple[str, Tensor]]) -> None:
        """Count the elements of these inputs; what is wrong with them, their count says."""
        for name, tensor in inputs:
            where, most = f" for inference input '{name}'", elements_in(tensor.shape, self._most)
            try:
                tensor.count = await self._turns.run(count_in_steps(tensor.buffer, where, most))
            except InvalidRequestError as error:
                tensor.count = error
