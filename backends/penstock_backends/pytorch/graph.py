"""`TorchGraph`: runs a program on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from penstock.backend import (
    Array,
    DataType,
    InternalError,
    InvalidRequestError,
    ModelConfig,
    ModelLoadError,
    Tensor,
)
from penstock_backends.pytorch.naming import input_names, output_names, places
from penstock_backends.pytorch.program import Program, mode, pytorch, reason
from penstock_backends.pytorch.settings import TorchSettings
from penstock_backends.tensor_models import Graph, GraphTensor
from penstock_backends.tensor_models.file_inputs import made_of_files
from penstock_backends.tensor_models.tokenizer import TOKENIZER

_NO_RESULT = (
    "output must be of type Tensor, List[str] or Tuple containing one of these two types. It should"
    " not be a List / Dictionary of Tensors or a Scalar"
)


class TorchGraph(Graph):
    """A program whose tensors are those of the configuration, since few files declare theirs."""

    engine = "PyTorch"

    def __init__(
        self, config: ModelConfig, program: Program, device: str | None, settings: TorchSettings
    ) -> None:
        self._program, self._device, self._settings = program, device, settings
        texts = config.parameter(TOKENIZER) is not None
        inputs = [*program.inputs] if texts else input_names(config)
        outputs = output_names(config)
        if program.by_order:
            self._inputs = {name: place for place, name in enumerate(inputs)}
            self._outputs = {name: place for place, name in enumerate(outputs)}
        else:
            known = (program.inputs, program.input_paths)
            self._inputs = places(config.name, "input", inputs, *known)
            self._outputs = places(config.name, "output", outputs, program.output_paths)
        if program.most is not None and (
            len(inputs) > program.most or max(self._inputs.values()) >= program.most
        ):
            raise ModelLoadError(
                f"unable to load model '{config.name}', configuration expects {len(inputs)} inputs,"
                f" model provides {program.most}"
            )
        self.inputs, self.defaults, self.outputs = _declared(config)
        if texts:  # the configuration declares these, and the model takes their tokens
            self.inputs = {name: GraphTensor(name, DataType.INT64, (-1, -1)) for name in inputs}
        self._bits = _names_of_bfloat16(config)

    def array(self, name: str, tensor: Tensor) -> Array:
        array = tensor.numpy()
        if tensor.datatype is DataType.BYTES and array.ndim != 1:
            raise InvalidRequestError(
                f"Triton only supports 1 dimensional List of String as input for '{name}'"
            )
        return array

    def run(self, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
        torch = pytorch()
        try:
            values = {self._inputs[name]: self._value(name, array) for name, array in feeds.items()}
            with mode(self._settings):
                results = _results(self._program.run(values))
            return [self._array(name, results) for name in names]
        except InternalError:
            raise
        except Exception as error:  # PyTorch has no base class of errors, and models are code
            # TorchScript raises a RuntimeError with the text of what was raised in it.
            if isinstance(error, torch.OutOfMemoryError) or "out of memory" in str(error):
                torch.cuda.empty_cache()  # for the next batch, which may be smaller
            raise InternalError(f"PyTorch execute failure: {reason(error)}") from error
        finally:
            if self._settings.cleans_cache and torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _value(self, name: str, array: Array) -> Any:
        """An argument: a tensor on the device, or a list of strings."""
        if array.dtype == object:
            return [_text(one) for one in array]
        # Models may write to their inputs, and memory of clients is not theirs.
        tensor = pytorch().from_numpy(array if array.flags.writeable else array.copy())
        if name in self._bits:
            tensor = tensor.view(pytorch().bfloat16)
        return tensor if self._device is None else tensor.to(self._device)

    def _array(self, name: str, results: Sequence[Any]) -> Array:
        place, declared = self._outputs[name], self.outputs[name].datatype
        if place >= len(results):
            raise InternalError(
                f"configuration expects output '{name}' at place {place}, model provides"
                f" {len(results)} outputs"
            )
        result = results[place]
        if isinstance(result, list):
            found, array = DataType.BYTES, np.array([one.encode() for one in result], object)
        else:
            found, array = _datatypes()[result.dtype], _to_host(result)
        if found is not declared:
            raise InternalError(
                f"configuration expects datatype {declared.config_name} for output '{name}', model"
                f" provides {found.config_name}"
            )
        return array


def _declared(
    config: ModelConfig,
) -> tuple[dict[str, GraphTensor], dict[str, GraphTensor], dict[str, GraphTensor]]:
    """Inputs, those of them that may be missing, and outputs, with whole shapes."""
    rows = (-1,) if config.max_batch_size else ()
    needed: dict[str, GraphTensor] = {}
    optional: dict[str, GraphTensor] = {}
    outputs: dict[str, GraphTensor] = {}
    files = made_of_files(config)
    for tensor in config.input:
        assert tensor.data_type is not None
        ragged = tensor.allow_ragged_batch and config.max_batch_size
        dims = (-1,) if ragged else (*rows, *tensor.backend_dims)
        one = files.get(tensor.name) or GraphTensor(tensor.name, tensor.data_type, dims)
        (optional if tensor.optional else needed)[tensor.name] = one
    for computed in config.batch_input:
        assert computed.data_type is not None
        for name in computed.target_name:
            needed[name] = GraphTensor(name, computed.data_type, (-1,))
    for output in config.output:
        assert output.data_type is not None
        dims = (*rows, *output.backend_dims)
        outputs[output.name] = GraphTensor(output.name, output.data_type, dims)
    for state in config.sequence_batching.state if config.sequence_batching else ():
        assert state.data_type is not None
        dims = (*rows, *state.dims)
        outputs.setdefault(state.output_name, GraphTensor(state.output_name, state.data_type, dims))
    return needed, optional, outputs


def _names_of_bfloat16(config: ModelConfig) -> frozenset[str]:
    """The inputs that come as bit patterns."""
    types = {tensor.name: tensor.data_type for tensor in config.input}
    types |= {name: made.datatype for name, made in made_of_files(config).items()}
    for state in config.sequence_batching.state if config.sequence_batching else ():
        types[state.input_name] = state.data_type
    return frozenset(name for name, datatype in types.items() if datatype is DataType.BF16)


def _results(found: Any) -> Sequence[Any]:
    """The results of a run in their order: tensors and lists of strings."""
    results = found if isinstance(found, tuple) else (found,)
    for one in results:
        if not isinstance(one, pytorch().Tensor) and not (
            isinstance(one, list) and all(isinstance(text, str) for text in one)
        ):
            raise InternalError(f"PyTorch execute failure: {_NO_RESULT}")
    return results


def _text(element: Any) -> str:
    return element.decode() if isinstance(element, bytes) else str(element)


def _to_host(tensor: Any) -> Array:
    """The tensor's elements; BF16 as bit patterns."""
    torch = pytorch()
    tensor = tensor.detach().to("cpu").contiguous()
    if tensor.dtype == torch.bfloat16:
        tensor = tensor.view(torch.uint16)
    array: Array = tensor.numpy()
    return array


@cache
def _datatypes() -> Mapping[Any, DataType]:
    torch = pytorch()
    return {
        torch.bool: DataType.BOOL,
        torch.uint8: DataType.UINT8,
        torch.uint16: DataType.UINT16,
        torch.uint32: DataType.UINT32,
        torch.uint64: DataType.UINT64,
        torch.int8: DataType.INT8,
        torch.int16: DataType.INT16,
        torch.int32: DataType.INT32,
        torch.int64: DataType.INT64,
        torch.float16: DataType.FP16,
        torch.float32: DataType.FP32,
        torch.float64: DataType.FP64,
        torch.bfloat16: DataType.BF16,
    }
