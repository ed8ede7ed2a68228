"""Implicit state: tensors kept by the server between requests of a sequence (S-16 to S-19).

A state's output of one request is its input of the next. It is the same tensor, never copied
here, so `use_same_buffer_for_input_output` and `use_growable_memory` have nothing to save.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import Tensor

Transform = Callable[[InferenceResponse], InferenceResponse]


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One state: the input and output that carry it, and its initial value."""

    input_name: str
    output_name: str
    initial: Tensor


class ImplicitStates:
    """The implicit states of one model; `outputs` are the names of its ordinary outputs."""

    def __init__(self, tensors: Sequence[StateTensor], outputs: Sequence[str]) -> None:
        self._tensors = tensors
        self._initial = {tensor.input_name: tensor.initial for tensor in tensors}
        self._names = tuple(tensor.output_name for tensor in tensors)
        self._outputs = tuple(outputs)

    def __bool__(self) -> bool:
        return bool(self._tensors)

    def initial(self) -> dict[str, Tensor]:
        """The initial states by input name."""
        return dict(self._initial)

    def requesting(self, request: InferenceRequest) -> InferenceRequest:
        """The request, with the states among its requested outputs."""
        asked = request.requested_outputs or self._outputs
        return request._replace(requested_outputs=tuple(dict.fromkeys((*asked, *self._names))))

    def keeping(
        self, request: InferenceRequest, keep: Callable[[str, Tensor], None], then: Transform | None
    ) -> Transform:
        """A transform that passes states to `keep`, and drops outputs that were not requested."""
        asked = frozenset(request.requested_outputs or self._outputs)

        def take(response: InferenceResponse) -> InferenceResponse:
            for tensor in self._tensors:
                if (value := response.outputs.get(tensor.output_name)) is not None:
                    keep(tensor.input_name, value)
            shown = {n: t for n, t in response.outputs.items() if n in asked}
            response = response.with_outputs(shown)
            return response if then is None else then(response)

        return take
