"""`TensorModel`: batches requests whose tensors are the graph's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.backend import (
    Array,
    InferenceRequest,
    InferenceResponse,
    InternalError,
    InvalidRequestError,
    ModelConfig,
    Outcome,
    Tensor,
    rows_of,
)
from penstock_backends.tensor_models.assembly import Assembly, Feeds
from penstock_backends.tensor_models.autocomplete import states
from penstock_backends.tensor_models.batch import answer_each, responses, wanted
from penstock_backends.tensor_models.graph import (
    Graph,
    as_element,
    as_scalar,
    scalar_inputs,
    scalar_outputs,
)

Answer = Callable[[Sequence[InferenceRequest]], list[Outcome]]
"""Answers a batch, one outcome for each request, in order. Blocks."""


class TensorModel:
    """Joins the tensors of a batch, runs the graph once, and splits the outputs."""

    def __init__(self, config: ModelConfig, graph: Graph) -> None:
        self._graph = graph
        self._name = config.name
        self._max_batch_size = config.max_batch_size
        self._assembly = Assembly(config, graph.joined)
        self._asked = graph.inputs.keys() - self._assembly.targets
        # State outputs are requested by name, by the sequence batcher.
        self._outputs = [*dict.fromkeys([*config.outputs_by_name, *states(config)])]
        self._scalar_inputs = scalar_inputs(config, graph.inputs | graph.defaults)
        self._scalar_outputs = scalar_outputs(config)

    def __call__(self, requests: Sequence[InferenceRequest]) -> list[Outcome]:
        """Answer every request, in order. Blocks."""
        return answer_each(requests, self._feeds, self._answer)

    def _feeds(self, request: InferenceRequest) -> Feeds:
        for name in self._asked:
            if name not in request.inputs:
                raise InvalidRequestError(
                    f"input '{name}' of model '{self._name}' is missing, and the "
                    f"{self._graph.engine} graph has no default for it"
                )
        return {name: self._array(name, tensor) for name, tensor in request.inputs.items()}

    def _array(self, name: str, tensor: Tensor) -> Array:
        array = self._graph.array(name, tensor)
        return as_scalar(array) if name in self._scalar_inputs else array

    def _answer(
        self, requests: list[InferenceRequest], feeds: list[Feeds]
    ) -> list[InferenceResponse]:
        names = wanted(requests, self._outputs)
        arrays = self._graph.run(self._assembly.joined(feeds), names)
        if len(arrays) != len(names):
            raise InternalError(
                f"the {self._graph.engine} engine answered with {len(arrays)} arrays for"
                f" {len(names)} output{'s' if len(names) > 1 else ''}"
            )
        rows = [rows_of(request, self._max_batch_size) for request in requests]
        outputs = {
            name: (self._graph.outputs[name].datatype, self._split(name, array, feeds, rows))
            for name, array in zip(names, arrays, strict=True)
        }
        return responses(requests, outputs)

    def _split(self, name: str, array: Array, feeds: list[Feeds], rows: list[int]) -> list[Array]:
        if name in self._scalar_outputs:
            array = as_element(array)
        return self._assembly.split(name, array, feeds, rows)
