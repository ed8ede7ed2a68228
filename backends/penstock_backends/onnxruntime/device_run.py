"""`DeviceRun`: runs a request whose tensors are on a device, passed from or to other models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from penstock.backend import (
    DataType,
    DeviceTensor,
    InferenceError,
    InferenceRequest,
    InferenceResponse,
    ModelConfig,
    Outcome,
    Tensor,
)
from penstock_backends.onnxruntime.graph import OnnxGraph
from penstock_backends.tensor_models.graph import scalar_inputs, scalar_outputs
from penstock_backends.tensor_models.padding import Padding
from penstock_backends.tensor_models.tensor_model import Answer

_KINDS = {1: "cpu", 2: "cuda"}
"""ONNX Runtime's names of devices, by DLPack's numbers."""
_UNKNOWN_TO_NUMPY = (DataType.BYTES, DataType.BF16)


class DeviceRun:
    """Runs one request alone: joining a batch would copy its tensors to the host."""

    def __init__(self, graph: OnnxGraph, memory: tuple[str, int], outputs: Sequence[str]) -> None:
        self._graph = graph
        self._memory = memory
        self._outputs = outputs

    @classmethod
    def for_graph(cls, config: ModelConfig, graph: OnnxGraph) -> Self | None:
        """For a graph on a device with the model's tensors unchanged; `None` for any other."""
        known = graph.inputs | graph.defaults
        tensors = [*known.values(), *graph.outputs.values()]
        changed = (
            any(tensor.datatype in _UNKNOWN_TO_NUMPY for tensor in tensors)
            or any(tensor.allow_ragged_batch for tensor in config.input)
            or config.batch_input
            or config.batch_output
            or config.sequence_batching
            or Padding.from_config(config).values
            or scalar_inputs(config, known)
            or scalar_outputs(config)
        )
        if graph.memory is None or changed:
            return None
        return cls(graph, graph.memory, [*config.outputs_by_name])

    def before(self, model: Answer) -> Answer:
        """`model`, with this run in its place for single requests that it suits."""

        def answer(requests: Sequence[InferenceRequest]) -> list[Outcome]:
            if len(requests) == 1 and self.suits(requests[0]):
                return [self(requests[0])]
            return model(requests)

        return answer

    def suits(self, request: InferenceRequest) -> bool:
        """Whether the request uses device tensors, and has all inputs that the graph requires."""
        inputs = request.inputs
        on_device = request.on_device or any(t.device is not None for t in inputs.values())
        return bool(on_device) and self._graph.inputs.keys() <= inputs.keys()

    def __call__(self, request: InferenceRequest) -> Outcome:
        """Answer the request. Blocks."""
        asked = request.requested_outputs
        names = [name for name in self._outputs if not asked or name in asked]
        held: list[Any] = []  # keeps the memory of inputs alive during the run

        def bind(binding: Any) -> None:
            for name, tensor in request.inputs.items():
                self._bind_input(binding, name, tensor, held)
            for name in names:
                where = self._memory if name in request.on_device else ("cpu", 0)
                binding.bind_output(name, *where)

        try:
            values = self._graph.run_bound(bind)
        except InferenceError as error:
            return error
        pairs = zip(names, values, strict=True)
        return InferenceResponse({n: self._output(n, v, request) for n, v in pairs})

    def _bind_input(self, binding: Any, name: str, tensor: Tensor, held: list[Any]) -> None:
        value = self._value(tensor.device)
        if value is None:
            binding.bind_cpu_input(name, tensor.numpy())
            return
        held.append(value)
        dtype, pointer = tensor.datatype.numpy, value.data_ptr()
        binding.bind_input(name, *self._memory, dtype.type, list(tensor.shape), pointer)

    def _value(self, source: Any) -> Any:
        """The tensor as an `OrtValue` if it is on the graph's device; otherwise `None`."""
        from onnxruntime import OrtValue

        if source is None:
            return None
        kind, number = source.__dlpack_device__()
        if (_KINDS.get(kind), number) != self._memory:
            return None
        return source if isinstance(source, OrtValue) else OrtValue.from_dlpack(source)

    def _output(self, name: str, value: Any, request: InferenceRequest) -> Tensor:
        datatype = self._graph.outputs[name].datatype
        if name in request.on_device:
            return DeviceTensor(datatype, value.shape(), value, value.numpy)
        return Tensor.from_numpy(value.numpy(), datatype)
