"""`OpenVinoGraph`: a model that OpenVINO has read, with its tensors, and an `InferRequest`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from threading import Lock
from time import monotonic
from typing import Any

import numpy as np

from penstock.backend import (
    Array,
    DataType,
    Input,
    InternalError,
    ModelConfig,
    ModelLoadError,
    Output,
    UnavailableError,
)
from penstock_backends.openvino.settings import OpenVinoSettings
from penstock_backends.tensor_models import Graph, GraphTensor
from penstock_backends.tensor_models.autocomplete import controls, states

DATATYPES = {
    "boolean": DataType.BOOL,
    "u8": DataType.UINT8,
    "u16": DataType.UINT16,
    "u32": DataType.UINT32,
    "u64": DataType.UINT64,
    "i8": DataType.INT8,
    "i16": DataType.INT16,
    "i32": DataType.INT32,
    "i64": DataType.INT64,
    "f16": DataType.FP16,
    "bf16": DataType.BF16,
    "f32": DataType.FP32,
    "f64": DataType.FP64,
}
_NAMES = {datatype: name for name, datatype in DATATYPES.items()}
_MOST_KNOWN = 4096
RESTS = 1
"""Times of a compilation for which a model is not compiled once more."""
Shapes = tuple[tuple[int, tuple[int, ...]], ...]
"""The shapes of a run's inputs, by their places."""
_PLACE = re.compile(r"^(Exception from |Check '.*' failed at |FrontEnd API failed with ).*:\s*$")


class Compiled:
    """A compiled model of several instances, and the shapes that its operators take.

    An error in the middle of a run leaves OpenVINO's CPU plugin with shapes that the model has not,
    for requests of other clients, and some shapes it computes without a word, with what lies behind
    them in memory. So shapes that are new are first inferred by OpenVINO itself, in a millisecond
    or two and without Python's lock. Where values are at fault, or a branch that was not looked
    into, the model is compiled anew before the next run, but for half of the time at most: between
    two compilations, runs of a model that has failed are refused.
    """

    def __init__(self, model: Any, compile_anew: Callable[[Any], Any]) -> None:
        self._read, self._compile = model, compile_anew
        self.model = compile_anew(model)
        self._working = Lock()
        self._failed = False
        self._rests_until = 0.0
        self._known: dict[Shapes, None] = {}
        # Of the branches of an `If`, one may be wrong for shapes that take the other.
        fixed = all(port.partial_shape.is_static for port in model.inputs)
        branches = any(node.get_type_name() == "If" for node in model.get_ops())
        self._inferred: Any = None if fixed or branches else model.clone()

    def check(self, shapes: Shapes) -> None:
        """Raise OpenVINO's error where an operator does not take what comes of these shapes."""
        if self._inferred is None or shapes in self._known:
            return
        from openvino import PartialShape

        with self._working:
            self._inferred.reshape({at: PartialShape([*dims]) for at, dims in shapes})
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[shapes] = None

    def note_failure(self, model: Any) -> None:
        """A run of this model has failed."""
        self._failed = self._failed or model is self.model

    def sound_model(self) -> Any:
        """The model to run, compiled anew after a failure.

        Raises `ModelLoadError` where it cannot be compiled, and `UnavailableError` soon after it
        was.
        """
        if self._failed:
            with self._working:
                if self._failed:
                    self._compile_anew()
        return self.model

    def _compile_anew(self) -> None:
        began = monotonic()
        if began < self._rests_until:
            raise UnavailableError("the model is compiled anew, since a request failed in it")
        try:
            self.model, self._failed = self._compile(self._read), False
        finally:
            ended = monotonic()
            self._rests_until = ended + RESTS * (ended - began)


class OpenVinoGraph(Graph):
    """The tensors of a model, and the request that runs it, once it is compiled.

    A tensor of several names has the one that the configuration `declared`; TensorFlow's `x:0` may
    be declared as `x`. With a `batch`, the model takes as many rows and no others; `pads` fills
    smaller batches up. `batches` says whether the layout of every tensor has a batch dimension.
    """

    engine = "OpenVINO"

    def __init__(
        self, model: Any, declared: Iterable[str] = (), batch: int = 0, pads: bool = False
    ) -> None:
        self._batch, self._pads = batch, pads
        self._request: Any = None
        self._model: Any = None
        self._compiled: Compiled
        self._owner: object = None
        names = frozenset(declared)
        self.inputs = _described(model.inputs, names, batch)
        self.outputs = _described(model.outputs, names, batch)
        self.defaults = {}
        self.batches = all(_has_batch(port) for port in [*model.inputs, *model.outputs])
        self._types = [port.element_type for port in model.inputs]
        self._places = {name: at for at, name in enumerate(self.inputs)}
        self._results = {name: at for at, name in enumerate(self.outputs)}

    def for_instance(self, compiled: Compiled, owner: object) -> OpenVinoGraph:
        """The same with a request of the compiled model to run; keeps that model's `owner`."""
        made = copy(self)
        made._compiled, made._owner = compiled, owner
        made._renew(compiled.model)
        return made

    def _renew(self, model: Any) -> None:
        self._model, self._request = model, model.create_infer_request()

    def run(self, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
        rows, missing = self._missing(feeds)
        arrays = {self._places[name]: _filled(array, missing) for name, array in feeds.items()}
        try:
            return [_cut(array, rows, missing) for array in self._run(arrays, names)]
        except UnavailableError:
            raise
        except ModelLoadError as error:
            raise InternalError(error.message) from error
        except Exception as error:  # OpenVINO raises plain `RuntimeError`
            raise InternalError(f"openvino error in running inference: {reason(error)}") from error

    def _run(self, arrays: Mapping[int, Array], names: Sequence[str]) -> list[Array]:
        """Run the request; the results are copies, since theirs is the next run's memory.

        It reads a batch where that was joined, but a client's memory it would hold until the next
        run, so that is copied. It is started and waited for: on one thread, the call that does
        both tells of no error, and leaves the results of the run before.
        """
        if (model := self._compiled.sound_model()) is not self._model:
            self._renew(model)
        self._compiled.check(tuple((at, arrays[at].shape) for at in sorted(arrays)))
        values = {at: self._value(at, array) for at, array in arrays.items()}
        own = all(array.base is None for array in arrays.values())
        self._request.start_async(values, share_inputs=own)
        try:
            self._request.wait()
        except RuntimeError:
            self._compiled.note_failure(self._model)
            raise
        found = ((name, self._request.get_output_tensor(self._results[name])) for name in names)
        return [_array(tensor, self.outputs[name].datatype) for name, tensor in found]

    def _value(self, at: int, array: Array) -> Any:
        """The array, or a tensor where numpy has no type for its elements."""
        if self._types[at].get_type_name() != "bf16":
            return array
        from openvino import Shape, Tensor

        return Tensor(array.copy(), Shape(array.shape), self._types[at])

    def _missing(self, feeds: Mapping[str, Array]) -> tuple[int, int]:
        """The rows of a batch, and how many it lacks."""
        if not self._batch:
            return 0, 0
        rows = len(next(iter(feeds.values())))
        if rows > self._batch or (rows < self._batch and not self._pads):
            raise InternalError(
                f"expected requests with batch size '{self._batch}', got '{rows}'... this error can"
                " be avoided by setting 'ENABLE_BATCH_PADDING' parameter in model configuration to"
                " 'YES' at a performance cost."
            )
        return rows, self._batch - rows


def prepared(model: Any, config: ModelConfig, settings: OpenVinoSettings) -> OpenVinoGraph:
    """The graph of `model`, with shapes and datatypes as the configuration has them.

    Changes the model; raises `ModelLoadError`.
    """
    computed = {name for tensor in config.batch_input for name in tensor.target_name}
    kept = controls(config) | states(config)
    declared = {*config.inputs_by_name, *config.outputs_by_name, *computed, *kept}
    try:
        batch = _shape(model, config, settings)
        _convert(model, config, declared)
    except ModelLoadError:
        raise
    except Exception as error:  # OpenVINO raises plain `RuntimeError`
        raise ModelLoadError(
            f"model '{config.name}' cannot be given the tensors of its configuration:"
            f" {reason(error)}"
        ) from error
    return OpenVinoGraph(model, declared, batch, settings.pads_batch)


def _shape(model: Any, config: ModelConfig, settings: OpenVinoSettings) -> int:
    """Reshape the inputs of a model; its fixed batch size, 0 for any."""
    from openvino import PartialShape

    most = config.max_batch_size
    shapes = {}
    for at, port in enumerate(model.inputs):
        given = config.inputs_by_name.get(_name(port, config.inputs_by_name.keys()))
        dims = _dims(port)
        # What takes files declares those, not the tensors that are made of them.
        if settings.reshapes and given is not None and given.data_type is not DataType.BYTES:
            dims = ((-1,) if most else ()) + tuple(given.backend_dims)
        if most and dims and not settings.keeps_batch:
            dims = (most if settings.pads_batch else -1, *dims[1:])
        if dims != _dims(port):
            shapes[at] = PartialShape(list(dims))
    if shapes:
        model.reshape(shapes)
    firsts = [_dims(port)[:1] for port in model.inputs]
    fixed = [first[0] for first in firsts if first and first[0] >= 0]
    return fixed[0] if most and len(fixed) == len(firsts) > 0 else 0


def _convert(model: Any, config: ModelConfig, declared: set[str]) -> None:
    """Convert at the inputs and outputs whose datatypes are declared otherwise."""
    from openvino import Type
    from openvino.preprocess import PrePostProcessor

    tensors: list[Input | Output] = [*config.input, *config.output]
    wanted = {tensor.name: tensor.data_type for tensor in tensors}
    steps = PrePostProcessor(model)
    changes = False
    for ports, step in ((model.inputs, steps.input), (model.outputs, steps.output)):
        for at, port in enumerate(ports):
            datatype = wanted.get(_name(port, declared))
            if datatype in (None, DATATYPES.get(port.element_type.get_type_name())):
                continue
            if datatype not in _NAMES or port.element_type.get_type_name() not in DATATYPES:
                continue  # the check of what is declared refuses it
            step(at).tensor().set_element_type(getattr(Type, _NAMES[datatype]))
            changes = True
    if changes:
        steps.build()


def reason(error: Exception) -> str:
    """OpenVINO's message, without the places in its source and the ways to change OpenVINO."""
    text = str(error).partition("To facilitate the conversion")[0]
    lines = [line.strip() for line in text.splitlines()]
    told = [line for line in lines if line and line != "Summary:" and not _PLACE.match(line)]
    return "; ".join(told) or str(error).strip()


def _described(
    ports: Sequence[Any], declared: frozenset[str], batch: int
) -> dict[str, GraphTensor]:
    tensors = [_tensor(port, _name(port, declared), batch) for port in ports]
    return {tensor.name: tensor for tensor in tensors}


def _tensor(port: Any, name: str, batch: int) -> GraphTensor:
    kind = port.element_type.get_type_name()
    if kind not in DATATYPES:
        raise ModelLoadError(f"tensor '{name}' is of type {kind}, which cannot be served")
    dims = _dims(port)
    return GraphTensor(name, DATATYPES[kind], (-1, *dims[1:]) if batch and dims else dims)


def _name(port: Any, declared: Iterable[str]) -> str:
    names: list[str] = sorted(port.get_names()) or [port.node.friendly_name]
    for name in names:
        for known in (name, name.removesuffix(":0")):
            if known in declared:
                return known
    return names[0]


def _dims(port: Any) -> tuple[int, ...]:
    """A bounded dimension is a variable one."""
    shape = port.partial_shape
    if shape.rank.is_dynamic:
        raise ModelLoadError(
            f"tensor '{_name(port, ())}' has any number of dimensions, which cannot be served"
        )
    return tuple(dim.get_length() if dim.is_static else -1 for dim in shape)


def _has_batch(port: Any) -> bool:
    from openvino import layout_helpers

    layout = layout_helpers.get_layout(port)
    return bool(layout_helpers.has_batch(layout)) and layout_helpers.batch_idx(layout) == 0


def _filled(array: Array, missing: int) -> Array:
    if not missing:
        return array
    return np.concatenate([array, np.zeros((missing, *array.shape[1:]), array.dtype)])


def _cut(array: Array, rows: int, missing: int) -> Array:
    return array[:rows] if missing else array


def _array(tensor: Any, datatype: DataType) -> Array:
    data: Array = tensor.data
    return (data.view(np.uint16) if datatype is DataType.BF16 else data).copy()
