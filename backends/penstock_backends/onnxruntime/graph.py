"""`OnnxGraph`: a session of an ONNX graph, with its input and output tensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np

from penstock.backend import (
    Array,
    DataType,
    InternalError,
    InvalidRequestError,
    ModelLoadError,
    Tensor,
)
from penstock_backends.tensor_models import Graph, GraphTensor

_DATATYPES = {
    "tensor(bool)": DataType.BOOL,
    "tensor(uint8)": DataType.UINT8,
    "tensor(uint16)": DataType.UINT16,
    "tensor(uint32)": DataType.UINT32,
    "tensor(uint64)": DataType.UINT64,
    "tensor(int8)": DataType.INT8,
    "tensor(int16)": DataType.INT16,
    "tensor(int32)": DataType.INT32,
    "tensor(int64)": DataType.INT64,
    "tensor(float16)": DataType.FP16,
    "tensor(float)": DataType.FP32,
    "tensor(double)": DataType.FP64,
    "tensor(string)": DataType.BYTES,
    "tensor(bfloat16)": DataType.BF16,
}
_ONNX_BF16 = 16
_REASON = re.compile(r"\[ONNXRuntimeError\] : (\d+) : \w+ : (.*)", re.DOTALL)


_to_bytes = np.frompyfunc(str.encode, 1, 1)


class OnnxGraph(Graph):
    """A session, and its tensors by name.

    `memory` is the device (ONNX Runtime's name, number) on which tensors can stay, or `None`.
    """

    engine = "ONNX"

    def __init__(
        self, session: Any, run_options: Any = None, memory: tuple[str, int] | None = None
    ) -> None:
        self._session = session
        self._options = run_options
        self._owner: object = None
        self.memory = memory
        self.inputs = _by_name(session.get_inputs())
        self.defaults = _by_name(session.get_overridable_initializers())
        self.outputs = _by_name(session.get_outputs())
        tensors = [*self.inputs.values(), *self.defaults.values(), *self.outputs.values()]
        self._has_bf16 = any(tensor.datatype is DataType.BF16 for tensor in tensors)
        made = self.outputs.values()
        self._strings = frozenset(t.name for t in made if t.datatype is DataType.BYTES)

    def for_instance(self, owner: object) -> OnnxGraph:
        """The same for one of the instances that share the session; keeps the session's `owner`."""
        made = copy(self)
        made._owner = owner
        return made

    def array(self, name: str, tensor: Tensor) -> Array:
        """The tensor; strings as `str`, the form that ONNX Runtime needs."""
        if tensor.datatype is not DataType.BYTES:
            return tensor.numpy()
        elements = tensor.elements()
        array = np.empty(len(elements), np.object_)
        try:
            array[:] = [element.decode() for element in elements]
        except UnicodeDecodeError as error:
            raise InvalidRequestError(f"input '{name}' holds a string that is not UTF-8") from error
        return array.reshape(tensor.shape)

    def run(self, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
        try:
            if self._has_bf16:
                return self._run_values(feeds, names)
            outputs: list[Array] = self._session.run(names, feeds, self._options)
        except Exception as error:  # ONNX Runtime has no base class of errors
            raise InternalError(reason(error)) from error
        if self._strings:
            return [
                _encoded(a) if n in self._strings else a
                for n, a in zip(names, outputs, strict=True)
            ]
        return outputs

    def run_bound(self, bind: Callable[[Any], None]) -> list[Any]:
        """The outputs that `bind` binds, as ONNX Runtime values, possibly on a device."""
        try:
            binding = self._session.io_binding()
            bind(binding)
            self._session.run_with_iobinding(binding, self._options)
            outputs: list[Any] = binding.get_outputs()
        except Exception as error:  # ONNX Runtime has no base class of errors
            raise InternalError(reason(error)) from error
        return outputs

    def _run_values(self, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
        """As `run`, with ONNX Runtime's own values, since numpy has no type for BF16."""
        known = self.inputs | self.defaults
        values = {name: _to_value(array, known[name].datatype) for name, array in feeds.items()}
        outputs = self._session.run_with_ort_values(names, values, self._options)
        return [
            _from_value(value, self.outputs[name].datatype)
            for name, value in zip(names, outputs, strict=True)
        ]


def reason(error: Exception) -> str:
    """ONNX Runtime's error message in Triton's form."""
    found = _REASON.search(str(error))
    return f"onnx runtime error {found[1]}: {found[2]}" if found else f"onnx runtime error: {error}"


def _by_name(values: Iterable[Any]) -> dict[str, GraphTensor]:
    return {value.name: _described(value) for value in values}


def _described(value: Any) -> GraphTensor:
    """ONNX Runtime's description; raises `ModelLoadError` for unsupported types."""
    if value.type not in _DATATYPES:
        raise ModelLoadError(f"tensor '{value.name}' is a {value.type}, which cannot be served")
    dims = tuple(dim if isinstance(dim, int) else -1 for dim in value.shape)
    return GraphTensor(value.name, _DATATYPES[value.type], dims)


def _encoded(array: Array) -> Array:
    return np.asarray(_to_bytes(array), np.object_)


def _to_value(array: Array, datatype: DataType) -> Any:
    from onnxruntime import OrtValue

    if datatype is DataType.BF16:
        return OrtValue.ortvalue_from_numpy_with_onnx_type(array, _ONNX_BF16)
    return OrtValue.ortvalue_from_numpy(array)


def _from_value(value: Any, datatype: DataType) -> Array:
    if datatype is not DataType.BF16:
        array: Array = value.numpy()
        return array
    return np.asarray(_Bits(value))


class _Bits:
    """The bit patterns of a BF16 value for numpy to view; keeps the value alive."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self.__array_interface__ = {
            "data": (value.data_ptr(), True),
            "shape": tuple(value.shape()),
            "typestr": "<u2",
            "version": 3,
        }
