"""`TensorFlowGraph`: a model that TensorFlow has loaded, and the session that runs it."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from penstock.backend import (
    Array,
    BackendNotInstalledError,
    ConfigError,
    DataType,
    InstanceContext,
    InternalError,
    ModelConfig,
    ModelLoadError,
)
from penstock_backends.tensor_models import Graph, GraphTensor
from penstock_backends.tensor_models.autocomplete import controls, states
from penstock_backends.tensorflow.saved_model import DATATYPES, SignatureGraph
from penstock_backends.tensorflow.settings import GRAPHDEF, TensorFlowSettings

_MADE_BY = re.compile(r"^Graph execution error:.*?^Node: '([^']*)'\n", re.MULTILINE | re.DOTALL)


@cache
def tensorflow() -> Any:
    """The library, which takes seconds and half a gigabyte; raises `BackendNotInstalledError`."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # what it says of each start
    try:
        import tensorflow
    except ImportError as error:
        raise BackendNotInstalledError(
            "the tensorflow backend needs a package that is not installed; install it with: "
            "pip install 'penstock[tensorflow]', or name the Python of an environment that has it: "
            "--backend-config=tensorflow,python=/path/to/python"
        ) from error
    tensorflow.get_logger().setLevel(logging.ERROR)  # it warns of what it calls itself
    return tensorflow


class TensorFlowGraph(Graph):
    """The graph of a SavedModel or of a GraphDef, and a session."""

    engine = "TensorFlow"

    def __init__(self, context: InstanceContext, path: Path, settings: TensorFlowSettings) -> None:
        config = context.config
        self._graph = tensorflow().Graph()
        self._session = tensorflow().compat.v1.Session(
            graph=self._graph, config=_session_config(context, settings)
        )
        self._callables: dict[tuple[tuple[str, ...], tuple[str, ...]], Callable[..., Any]] = {}
        try:
            self._load(config, path, settings)
            self._initialize(config, context, settings)
        except (ConfigError, ModelLoadError):
            raise
        except Exception as error:  # TensorFlow and protobuf have errors of many classes
            raise ModelLoadError(
                f"failed to load model '{config.name}': {_reason(error)}"
            ) from error

    def _load(self, config: ModelConfig, path: Path, settings: TensorFlowSettings) -> None:
        compat = tensorflow().compat.v1
        with self._graph.as_default():
            if config.platform == GRAPHDEF:
                compat.import_graph_def(_graph_def(config, path), name="")
                self._take_nodes(config)
                return
            signature = SignatureGraph(config, path, settings)
            self.inputs, self.outputs = signature.inputs, signature.outputs
            self.defaults, self._nodes = signature.defaults, signature.nodes
            compat.saved_model.loader.load(self._session, [settings.tag], str(path))

    def _take_nodes(self, config: ModelConfig) -> None:
        """The tensors that the configuration names; a placeholder that it does not may be one."""
        computed = {name for tensor in config.batch_input for name in tensor.target_name}
        asked = {*config.inputs_by_name, *computed, *controls(config)}
        operators = {operator.name: operator for operator in self._graph.get_operations()}
        places = [name for name, one in operators.items() if one.type.startswith("Placeholder")]
        known = {name: self._tensor(config, name, f"{name}:0") for name in places}
        self.inputs = {name: tensor for name, tensor in known.items() if name in asked}
        self.defaults = {name: tensor for name, tensor in known.items() if name not in asked}
        self.outputs = {}
        for name in dict.fromkeys([*config.outputs_by_name, *states(config)]):
            node, _, number = name.partition(":")
            if node not in operators or len(operators[node].outputs) <= int(number or 0):
                raise ModelLoadError(
                    f"unexpected inference output '{name}' for model '{config.name}', whose graph"
                    " has no such node"
                )
            self.outputs[name] = self._tensor(config, name, f"{node}:{number or 0}")
        self._nodes = {
            name: name if ":" in name else f"{name}:0" for name in [*known, *self.outputs]
        }

    def _tensor(self, config: ModelConfig, name: str, node: str) -> GraphTensor:
        found = self._graph.get_tensor_by_name(node)
        number = found.dtype.base_dtype.as_datatype_enum
        if number not in DATATYPES:
            raise ModelLoadError(
                f"unable to process tensor '{name}' for '{config.name}', unsupported datatype"
                f" '{found.dtype.name}'"
            )
        if found.shape.rank is not None:
            dims = tuple(-1 if dim is None else dim for dim in found.shape.as_list())
        else:
            declared = config.inputs_by_name.get(name) or config.outputs_by_name.get(name)
            rows = (-1,) if config.max_batch_size else ()
            dims = (*rows, *(declared.backend_dims if declared else ()))
        return GraphTensor(name, DATATYPES[number], dims)

    def _initialize(
        self, config: ModelConfig, context: InstanceContext, settings: TensorFlowSettings
    ) -> None:
        """Run the operators that the configuration names for the start."""
        name = settings.init_ops_file
        if not name:
            return
        folders = (context.version_path, context.model_path)
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if path is None:
            raise ConfigError(
                f"model '{config.name}': parameter 'TF_INIT_OPS_FILE' names '{name}', which is"
                f" neither in {folders[0]} nor in {folders[1]}"
            )
        for operator in _init_ops(path):
            self._session.run(self._graph.get_operation_by_name(operator))

    def run(self, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
        given = tuple(feeds)
        try:
            call = self._callable(given, tuple(names))
            found = call(*(self._fed(name, feeds[name]) for name in given))
            return [_array(array) for array in found]
        except Exception as error:  # TensorFlow raises errors of many classes
            raise InternalError(f"TensorFlow error: {_reason(error)}") from error

    def _callable(self, given: tuple[str, ...], names: tuple[str, ...]) -> Callable[..., Any]:
        if (given, names) not in self._callables:
            self._callables[given, names] = self._session.make_callable(
                [self._nodes[name] for name in names], [self._nodes[name] for name in given]
            )
        return self._callables[given, names]

    def _fed(self, name: str, array: Array) -> Array:
        tensor = self.inputs.get(name) or self.defaults[name]
        if tensor.datatype is not DataType.BF16:
            return array
        bits: Array = array.view(tensorflow().bfloat16.as_numpy_dtype)
        return bits


def _session_config(context: InstanceContext, settings: TensorFlowSettings) -> Any:
    made = tensorflow().compat.v1.ConfigProto(
        intra_op_parallelism_threads=settings.threads,
        inter_op_parallelism_threads=settings.operators,
        use_per_session_threads=settings.own_threads,
        allow_soft_placement=settings.soft_placement,
    )
    made.graph_options.optimizer_options.global_jit_level = settings.xla
    if context.kind == "KIND_CPU":
        made.device_count["GPU"] = 0
    if context.kind == "KIND_GPU":
        made.gpu_options.visible_device_list = str(context.device_id)
    if settings.memory_fraction:
        made.gpu_options.per_process_gpu_memory_fraction = settings.memory_fraction
    else:
        made.gpu_options.allow_growth = True
    return made


def _graph_def(config: ModelConfig, path: Path) -> Any:
    """A frozen graph, binary or text; raises `ModelLoadError`."""
    from google.protobuf import text_format

    content = path.read_bytes()
    made = tensorflow().compat.v1.GraphDef()
    try:
        made.ParseFromString(content)
    except Exception as binary:
        try:
            text_format.Parse(content.decode(), made)
        except Exception:
            raise ModelLoadError(
                f"failed to load model '{config.name}': '{path}' is no GraphDef: {binary}"
            ) from binary
    if not made.node:
        raise ModelLoadError(f"model {config.name} has an empty network")
    return made


def _init_ops(path: Path) -> Iterable[str]:
    try:
        given = json.loads(path.read_text("utf-8"))
        names = given["init_ops"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise TypeError("they are no list of names")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"'{path}' has to be JSON with the list 'init_ops': {error}") from error
    return names


def _array(found: Any) -> Array:
    """An output of TensorFlow: BF16 as bit patterns, strings as objects of `bytes`."""
    array = np.asarray(found, object) if isinstance(found, bytes) else np.asarray(found)
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def _reason(error: Exception) -> str:
    """The reason of an error, without the lines of Python that made the graph, and the graph."""
    text: str = getattr(error, "message", "") or str(error) or repr(error)
    text = _MADE_BY.sub(r"node '\1': ", text)
    return text.partition("\n\t [[{{node")[0].partition("\n\nOriginal stack trace")[0].strip()
