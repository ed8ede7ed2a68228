"""`OnnxGraph`: a session of an ONNX graph, with its input and output tensors."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from copy import copy
from functools import cache
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
from penstock_backends.onnxruntime.device_rows import NAMES, DeviceRows
from penstock_backends.tensor_models import DeviceGraph, GraphTensor
from penstock_backends.tensor_models.device_run import Memory

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
_JOINED_ON_HOST = 64 << 10
"""Bytes of an input's rows below which they are joined on the host, and go to the device as one."""
_REASON = re.compile(r"\[ONNXRuntimeError\] : (\d+) : \w+ : (.*)", re.DOTALL)


_to_bytes = np.frompyfunc(str.encode, 1, 1)


class OnnxGraph(DeviceGraph):
    """A session, and its tensors by name."""

    engine = "ONNX"
    unknown = (DataType.BYTES, DataType.BF16)

    def __init__(self, session: Any, run_options: Any = None, memory: Memory | None = None) -> None:
        self._session = session
        self._options = run_options
        self._owner: object = None
        self.memory = memory
        self.joins = memory is not None
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

    # -- on a device -------------------------------------------------------------------------------

    def placed(self, name: str, tensors: Sequence[Tensor]) -> Array | DeviceRows:
        try:
            there = [self._there(tensor) for tensor in tensors]
            if len(tensors) == 1:
                return there[0] or tensors[0].numpy()
            nowhere = not any(there)
            if nowhere and sum(tensor.nbytes for tensor in tensors) < _JOINED_ON_HOST:
                return np.concatenate([tensor.numpy() for tensor in tensors])
            return _side_by_side(there) or self._joined_there(name, tensors, there)
        except InternalError:
            raise
        except Exception as error:  # ONNX Runtime has no base class of errors
            raise InternalError(reason(error)) from error

    def _there(self, tensor: Tensor) -> DeviceRows | None:
        """The value that is on the graph's device already; `None` for one elsewhere."""
        source = tensor.device
        if source is None or tuple(source.__dlpack_device__()) != self.memory:
            return None
        if isinstance(source, DeviceRows):
            return source.reshaped(tensor.shape)
        from onnxruntime import OrtValue

        return DeviceRows(OrtValue.from_dlpack(source), tensor.datatype, tensor.shape)

    def _joined_there(
        self, name: str, tensors: Sequence[Tensor], there: Sequence[DeviceRows | None]
    ) -> DeviceRows:
        """New memory of the device with the rows of all, each copied from where it is."""
        from onnxruntime import OrtValue

        datatype, shape = tensors[0].datatype, tensors[0].shape[1:]
        if any(tensor.shape[1:] != shape for tensor in tensors):
            raise InternalError(f"input '{name}': rows of different shapes cannot be joined")
        shape = (sum(tensor.shape[0] for tensor in tensors), *shape)
        value = OrtValue.ortvalue_from_shape_and_type(shape, datatype.numpy.type, *self._where)
        made, begin = DeviceRows(value, datatype, shape), 0
        for tensor, source in zip(tensors, there, strict=True):
            end = begin + tensor.shape[0]
            target = OrtValue.from_dlpack(made.rows(begin, end))
            if source is None:
                target.update_inplace(np.ascontiguousarray(tensor.numpy()))
            else:
                target.update_inplace(OrtValue.from_dlpack(source))
            begin = end
        return made

    @property
    def _where(self) -> tuple[str, int]:
        """ONNX Runtime's name of the device, and its number."""
        assert self.memory is not None
        kind, number = self.memory
        return NAMES[kind], number

    def run_placed(
        self, values: Mapping[str, Any], names: Sequence[str], stay: Container[str]
    ) -> list[Any]:
        try:
            binding = self._session.io_binding()
            for name, value in values.items():
                self._bind(binding, name, value)
            for name in names:
                binding.bind_output(name, *(self._where if name in stay else ("cpu", 0)))
            binding.synchronize_inputs()  # copies to the device are on another stream
            self._session.run_with_iobinding(binding, self._options)
            binding.synchronize_outputs()
            outputs = binding.get_outputs()
        except Exception as error:  # ONNX Runtime has no base class of errors
            raise InternalError(reason(error)) from error
        return [
            DeviceRows(value, self.outputs[name].datatype, value.shape())
            if name in stay
            else value.numpy()
            for name, value in zip(names, outputs, strict=True)
        ]

    def _bind(self, binding: Any, name: str, value: Array | DeviceRows) -> None:
        if not isinstance(value, DeviceRows):
            array = value if value.flags.aligned and value.flags.c_contiguous else value.copy()
            binding.bind_cpu_input(name, array)
        elif value.whole is not None:
            binding.bind_ortvalue_input(name, value.whole)
        else:
            kind = value.datatype.numpy.type
            binding.bind_input(name, *self._where, kind, list(value.shape), value.pointer)

    def shape(self, value: DeviceRows) -> tuple[int, ...]:
        return value.shape

    def rows(self, value: DeviceRows, begin: int, end: int) -> DeviceRows:
        return value.rows(begin, end)

    def on_host(self, value: DeviceRows) -> Array:
        from onnxruntime import OrtValue

        found = value.whole
        try:
            array: Array = (OrtValue.from_dlpack(value) if found is None else found).numpy()
        except Exception as error:  # ONNX Runtime has no base class of errors
            raise InternalError(reason(error)) from error
        return array

    def _run_values(self, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
        """As `run`, with ONNX Runtime's own values, since numpy has no type for BF16."""
        known = self.inputs | self.defaults
        values = {name: _to_value(array, known[name].datatype) for name, array in feeds.items()}
        outputs = self._session.run_with_ort_values(names, values, self._options)
        return [
            _from_value(value, self.outputs[name].datatype)
            for name, value in zip(names, outputs, strict=True)
        ]


def _side_by_side(parts: Sequence[DeviceRows | None]) -> DeviceRows | None:
    """All rows as they lie, where they are one after another, as a step before has made them."""
    joined = parts[0]
    for part in parts[1:]:
        if joined is None or part is None:
            return None
        joined = joined.with_next(part)
    return joined


@cache
def can_stay() -> bool:
    """Whether the installed ONNX Runtime has what tensors on a device need: newer ones do."""
    from onnxruntime import OrtValue

    made = OrtValue.ortvalue_from_shape_and_type([1], np.float32)
    try:
        made.update_inplace(OrtValue.from_dlpack(np.ones(1, np.float32)))
    except (AttributeError, TypeError):
        return False
    return bool(made.numpy()[0] == 1)


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
