"""`TorchGraph`: runs a program on arrays."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from penstock_backends.tensor_models import DeviceGraph, GraphTensor
from penstock_backends.tensor_models.file_inputs import made_of_files
from penstock_backends.tensor_models.tokenizer import TOKENIZER

_NO_RESULT = (
    "output must be of type Tensor, List[str] or Tuple containing one of these two types. It should"
    " not be a List / Dictionary of Tensors or a Scalar"
)


class TorchGraph(DeviceGraph):
    """A program whose tensors are those of the configuration, since few files declare theirs."""

    engine = "PyTorch"

    def __init__(
        self,
        config: ModelConfig,
        program: Program,
        device: str | None,
        settings: TorchSettings,
        owner: object = None,
    ) -> None:
        self._program, self._device, self._settings = program, device, settings
        self._owner = owner  # of what instances share
        if device is not None:
            self.joins = device != "cpu"
            self.memory = (2, int(device.partition(":")[2])) if self.joins else (1, 0)
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
        with self._errors():
            results = self._run({n: self._value(n, array) for n, array in feeds.items()})
            return [self._checked(name, results, _array_of) for name in names]

    def _run(self, values: Mapping[str, Any]) -> Sequence[Any]:
        """The results of the program for its arguments, in its order."""
        with mode(self._settings):
            return _results(self._program.run({self._inputs[n]: v for n, v in values.items()}))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of PyTorch are raised as `InternalError`."""
        torch = pytorch()
        try:
            yield
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
        tensor = self._over(name, array if array.flags.writeable else array.copy())
        return tensor if self._device is None else tensor.to(self._device)

    def _over(self, name: str, array: Array) -> Any:
        """A tensor over the array's memory."""
        tensor = pytorch().from_numpy(array)
        return tensor.view(pytorch().bfloat16) if name in self._bits else tensor

    def _checked(self, name: str, results: Sequence[Any], form: Callable[[Any], Any]) -> Any:
        """The result that is this output, in a form, where it is what the configuration says."""
        place, declared = self._outputs[name], self.outputs[name].datatype
        if place >= len(results):
            raise InternalError(
                f"configuration expects output '{name}' at place {place}, model provides"
                f" {len(results)} outputs"
            )
        result = results[place]
        texts = isinstance(result, list)
        found = DataType.BYTES if texts else _datatypes()[result.dtype]
        if found is not declared:
            raise InternalError(
                f"configuration expects datatype {declared.config_name} for output '{name}', model"
                f" provides {found.config_name}"
            )
        return form(result)

    # -- on a device -------------------------------------------------------------------------------

    def placed(self, name: str, tensors: Sequence[Tensor]) -> Any:
        with self._errors():
            if len(tensors) == 1 and tensors[0].device is None:
                return self._value(name, tensors[0].numpy())
            parts = [self._part(name, tensor) for tensor in tensors]
            if len(parts) == 1:  # models may write to their inputs, and another may read this one
                return parts[0].to(self._device, copy=True)
            on_host = self.joins and all(part.device.type == "cpu" for part in parts)
            return self._joined(parts, on_host)

    def _part(self, name: str, tensor: Tensor) -> Any:
        """The rows of one request where they are, to be read only."""
        if tensor.device is None:
            return self._over(name, np.asarray(_Readable(tensor.numpy())))
        return pytorch().from_dlpack(tensor.device).reshape(tensor.shape)

    def _joined(self, parts: Sequence[Any], on_host: bool) -> Any:
        """All rows on the device: from the host by one copy, out of memory that the GPU reads."""
        torch, first = pytorch(), parts[0]
        if any(part.shape[1:] != first.shape[1:] for part in parts):
            raise InternalError("rows of different shapes cannot be joined")
        shape = (sum(len(part) for part in parts), *first.shape[1:])
        place = {"pin_memory": True} if on_host else {"device": self._device}
        joined, begin = torch.empty(shape, dtype=first.dtype, **place), 0
        for part in parts:
            end = begin + len(part)
            joined[begin:end].copy_(part)
            begin = end
        return joined.to(self._device, non_blocking=True) if on_host else joined

    def run_placed(
        self, values: Mapping[str, Any], names: Sequence[str], stay: Container[str]
    ) -> list[Any]:
        with self._errors():
            results = self._run(values)
            made = [
                self._checked(name, results, self._left if name in stay else _array_of)
                for name in names
            ]
            if self.joins:
                pytorch().cuda.current_stream(self._device).synchronize()
            return made

    def _left(self, result: Any) -> Any:
        return result.detach().to(self._device).contiguous()

    def shape(self, value: Any) -> tuple[int, ...]:
        return tuple(value.shape)

    def rows(self, value: Any, begin: int, end: int) -> Any:
        return value[begin:end]

    def on_host(self, value: Any) -> Array:
        return _to_host(value)


class _Readable:
    """An array's memory for PyTorch, which warns of arrays that cannot be written."""

    def __init__(self, array: Array) -> None:
        self._array = np.ascontiguousarray(array)
        found = self._array.__array_interface__
        self.__array_interface__ = {**found, "data": (found["data"][0], False)}


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


def _array_of(result: Any) -> Array:
    if isinstance(result, list):
        return np.array([one.encode() for one in result], object)
    return _to_host(result)


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
