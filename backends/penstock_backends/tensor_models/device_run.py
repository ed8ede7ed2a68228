"""`DeviceRun`: runs batches on a device, and leaves there what other models take next."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Container, Mapping, Sequence
from itertools import accumulate
from typing import Any, Self

from penstock.backend import (
    Array,
    DataType,
    DeviceTensor,
    InferenceRequest,
    InferenceResponse,
    InternalError,
    ModelConfig,
    Outcome,
    Tensor,
    rows_of,
)
from penstock_backends.tensor_models.batch import by_rows, wanted
from penstock_backends.tensor_models.graph import Graph, scalar_inputs, scalar_outputs
from penstock_backends.tensor_models.padding import Padding
from penstock_backends.tensor_models.tensor_model import Answer

Memory = tuple[int, int]
"""A device by DLPack's numbers: its kind, and which of that kind it is."""


class DeviceGraph(Graph):
    """A graph on a device, which reads what other models have left there.

    Values on the device are the engine's own and speak DLPack; those on the host are arrays. All
    methods block, and raise `InternalError`.
    """

    memory: Memory | None = None
    """The device where tensors can stay; `None` for none."""
    joins: bool = False
    """Whether batches that come from the host, and go back to it, are joined on the device, too."""
    unknown: Container[DataType] = (DataType.BYTES,)
    """Datatypes that cannot stay on the device."""

    @abstractmethod
    def placed(self, name: str, tensors: Sequence[Tensor]) -> Any:
        """The rows of the requests of a batch as one value, each written to it once.

        On the device where one of them is; else where it takes the fewest copies.
        """

    @abstractmethod
    def run_placed(
        self, values: Mapping[str, Any], names: Sequence[str], stay: Container[str]
    ) -> list[Any]:
        """The outputs `names` of inputs from `placed`: on the device those in `stay`, else arrays.

        The device is done with them.
        """

    @abstractmethod
    def shape(self, value: Any) -> tuple[int, ...]:
        """The shape of a value on the device."""

    @abstractmethod
    def rows(self, value: Any, begin: int, end: int) -> Any:
        """Some rows of a value on the device, not copied."""

    @abstractmethod
    def on_host(self, value: Any) -> Array:
        """A value on the device, copied."""


class DeviceRun:
    """Answers the batches whose tensors come from the device of the graph, or stay there."""

    def __init__(self, config: ModelConfig, graph: DeviceGraph) -> None:
        self._graph = graph
        self._max_batch_size = config.max_batch_size
        self._outputs = [*config.outputs_by_name]

    @classmethod
    def for_graph(cls, config: ModelConfig, graph: Graph) -> Self | None:
        """For a graph on a device with the model's tensors unchanged; `None` for any other."""
        if not isinstance(graph, DeviceGraph) or graph.memory is None:
            return None
        known = graph.inputs | graph.defaults
        tensors = [*known.values(), *graph.outputs.values()]
        changed = (
            any(tensor.datatype in graph.unknown for tensor in tensors)
            or any(tensor.allow_ragged_batch for tensor in config.input)
            or config.batch_input
            or config.batch_output
            or config.sequence_batching
            or Padding.from_config(config).values
            or scalar_inputs(config, known)
            or scalar_outputs(config)
        )
        return None if changed else cls(config, graph)

    def before(self, model: Answer) -> Answer:
        """`model`, with this run in its place for the batches that it suits."""

        def answer(requests: Sequence[InferenceRequest]) -> list[Outcome]:
            return self(requests) if self.suits(requests) else model(requests)

        return answer

    def suits(self, requests: Sequence[InferenceRequest]) -> bool:
        """Whether a batch is for the device, and whole: all have what the graph requires."""
        joined = self._graph.joins and len(requests) > 1
        if not (joined or any(map(_uses_device, requests))):
            return False
        names = requests[0].inputs.keys()
        alike = all(request.inputs.keys() == names for request in requests)
        return alike and self._graph.inputs.keys() <= names

    def __call__(self, requests: Sequence[InferenceRequest]) -> list[Outcome]:
        """Answer the requests of a batch, in order. Blocks."""
        names = wanted(requests, self._outputs)
        stay = frozenset(name for request in requests for name in request.on_device)
        rows = [rows_of(request, self._max_batch_size) for request in requests]
        try:
            values = {
                name: self._graph.placed(name, [request.inputs[name] for request in requests])
                for name in requests[0].inputs
            }
            made = self._graph.run_placed(values, names, stay)
            parts = {
                name: self._left(name, value, rows) if name in stay else by_rows(name, value, rows)
                for name, value in zip(names, made, strict=True)
            }
            return [self._response(request, at, parts, stay) for at, request in enumerate(requests)]
        except InternalError as error:
            return [InternalError(error.message) for _ in requests]

    def _left(self, name: str, value: Any, rows: Sequence[int]) -> list[Any]:
        """Each request's rows of an output that is on the device; a single request has it all."""
        if len(rows) == 1:
            return [value]
        if self._graph.shape(value)[:1] != (sum(rows),):
            raise InternalError(
                f"failed to split the output tensor '{name}' in responses: expected {sum(rows)}"
                f" rows in model output, got shape {[*self._graph.shape(value)]}"
            )
        ends = accumulate(rows)
        return [
            self._graph.rows(value, end - count, end) for count, end in zip(rows, ends, strict=True)
        ]

    def _response(
        self,
        request: InferenceRequest,
        at: int,
        parts: Mapping[str, Sequence[Any]],
        stay: Container[str],
    ) -> InferenceResponse:
        outputs: dict[str, Tensor] = {}
        for name, each in parts.items():
            if request.requested_outputs and name not in request.requested_outputs:
                continue
            part, datatype = each[at], self._graph.outputs[name].datatype
            if name in request.on_device:
                outputs[name] = self._device_tensor(part, datatype)
            else:
                array = self._graph.on_host(part) if name in stay else part
                outputs[name] = Tensor.from_numpy(array, datatype)
        return InferenceResponse(outputs)

    def _device_tensor(self, part: Any, datatype: DataType) -> DeviceTensor:
        graph = self._graph
        return DeviceTensor(datatype, graph.shape(part), part, lambda: graph.on_host(part))


def _uses_device(request: InferenceRequest) -> bool:
    tensors = request.inputs.values()
    return bool(request.on_device) or any(tensor.device is not None for tensor in tensors)
