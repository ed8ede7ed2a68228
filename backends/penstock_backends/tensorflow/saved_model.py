"""`SignatureGraph`: the tensors of a SavedModel's signature, read without TensorFlow (AC-13)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from penstock.backend import Array, DataType, InternalError, ModelConfig, ModelLoadError
from penstock_backends.tensor_models import Graph, GraphTensor
from penstock_backends.tensor_models.autocomplete import all_rows_vary
from penstock_backends.tensorflow.settings import TensorFlowSettings

logger = logging.getLogger(__name__)

DATATYPES = {
    1: DataType.FP32,
    2: DataType.FP64,
    3: DataType.INT32,
    4: DataType.UINT8,
    5: DataType.INT16,
    6: DataType.INT8,
    7: DataType.BYTES,
    9: DataType.INT64,
    10: DataType.BOOL,
    14: DataType.BF16,
    17: DataType.UINT16,
    19: DataType.FP16,
    22: DataType.UINT32,
    23: DataType.UINT64,
}
"""TensorFlow's number of a datatype -> ours."""

_OTHERS = {8: "DT_COMPLEX64", 18: "DT_COMPLEX128", 20: "DT_RESOURCE", 21: "DT_VARIANT"}
_OF_LOADING = ("__saved_model_init_op", "__saved_model_train_op")
"""Signatures that are for the loader."""


class SignatureGraph(Graph):
    """The signature that is served: its tensors by name, and `nodes`, theirs in the graph.

    A tensor whose number of dimensions the file does not say has those of the configuration;
    `unranked` are those without any.
    """

    engine = "TensorFlow"

    def __init__(self, config: ModelConfig, folder: Path, settings: TensorFlowSettings) -> None:
        signature = _chosen(config, _meta_graph(config, folder, settings), settings)
        self.nodes: dict[str, str] = {}
        self.unranked: list[str] = []
        self.inputs = self._described(config, "input", signature.inputs)
        self.outputs = self._described(config, "output", signature.outputs)
        self.defaults = {}

    def run(self, feeds: Mapping[str, Array], names: Sequence[str]) -> list[Array]:
        raise InternalError("a signature only describes a model")

    def _described(
        self, config: ModelConfig, what: str, entries: Sequence[Any]
    ) -> dict[str, GraphTensor]:
        found = {}
        for entry in sorted(entries, key=lambda entry: entry.key):
            name, tensor = entry.key, entry.value
            if tensor.datatype not in DATATYPES:
                raise ModelLoadError(
                    f"unable to process {what} '{name}' for '{config.name}', unsupported datatype"
                    f" '{_OTHERS.get(tensor.datatype, tensor.datatype)}'"
                )
            dims = tuple(max(dim.size, -1) for dim in tensor.shape.dims)
            if not dims:
                dims = self._declared(config, name, scalar=not tensor.shape.unknown_rank)
            self.nodes[name] = tensor.name
            found[name] = GraphTensor(name, DATATYPES[tensor.datatype], dims)
        return found

    def _declared(self, config: ModelConfig, name: str, *, scalar: bool) -> tuple[int, ...]:
        """The dimensions of a tensor that is a scalar, or has any number of them."""
        declared = config.inputs_by_name.get(name) or config.outputs_by_name.get(name)
        if declared is None or not (declared.dims or declared.reshape):
            self.unranked.append(name)
        if declared is None or scalar:
            return ()
        return (*((-1,) if config.max_batch_size else ()), *declared.backend_dims)


def signature_batches(config: ModelConfig, graph: Graph) -> bool:
    """Whether the first dimension of all tensors varies; raises where a batch is asked for."""
    batches = all_rows_vary(graph)
    if config.max_batch_size and not batches:
        raise ModelLoadError(
            f"unable to autofill for '{config.name}', configuration specified max-batch "
            f"{config.max_batch_size} but model signature does not support batching"
        )
    return batches


def _meta_graph(config: ModelConfig, folder: Path, settings: TensorFlowSettings) -> Any:
    """The graph with the tag; raises `ModelLoadError`."""
    path = folder / "saved_model.pb"
    try:
        model = message("SavedModel").FromString(path.read_bytes())
    except (OSError, DecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no SavedModel"
        raise ModelLoadError(
            f"failed to load model '{config.name}': cannot read '{path}': {why}"
        ) from error
    for graph in model.graphs:
        if settings.tag in graph.meta.tags:
            return graph
    tags = ", ".join(f"'{tag}'" for graph in model.graphs for tag in graph.meta.tags)
    raise ModelLoadError(
        f"unable to load model '{config.name}', expected '{settings.tag}' tag; the model has"
        f" {tags or 'none'}"
    )


def _chosen(config: ModelConfig, graph: Any, settings: TensorFlowSettings) -> Any:
    """The signature of the name, else another one; raises `ModelLoadError`."""
    signatures = {entry.key: entry.value for entry in graph.signatures}
    if settings.signature in signatures:
        return signatures[settings.signature]
    for name in sorted(signatures.keys() - {*_OF_LOADING}):
        logger.warning(
            "model '%s': unable to find default serving signature '%s', using signature '%s'",
            config.name,
            settings.signature,
            name,
        )
        return signatures[name]
    raise ModelLoadError(
        f"unable to load model '{config.name}', expected '{settings.signature}' signature"
    )


# -- the part of TensorFlow's messages that is read ------------------------------------------------

_MESSAGES = {
    "SavedModel": {"graphs": (2, "*MetaGraph")},
    "MetaGraph": {"meta": (1, "MetaInfo"), "signatures": (5, "*SignatureEntry")},
    "MetaInfo": {"tags": (4, "*string")},
    "SignatureEntry": {"key": (1, "string"), "value": (2, "Signature")},
    "Signature": {"inputs": (1, "*TensorEntry"), "outputs": (2, "*TensorEntry")},
    "TensorEntry": {"key": (1, "string"), "value": (2, "Tensor")},
    "Tensor": {"name": (1, "string"), "datatype": (2, "int32"), "shape": (3, "Shape")},
    "Shape": {"dims": (2, "*Dim"), "unknown_rank": (3, "bool")},
    "Dim": {"size": (1, "int64")},
}
"""Message -> field -> its number and type; `*` is for many. A map is a list of its entries."""

_PACKAGE = "penstock.saved_model"
_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _Field.TYPE_STRING,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "bool": _Field.TYPE_BOOL,
}


@cache
def message(name: str) -> Any:
    """The class of a message, by its name in `_MESSAGES`."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    file = descriptor_pb2.FileDescriptorProto(
        name="saved_model.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            many, plain = kind.startswith("*"), kind.lstrip("*")
            label = _Field.LABEL_REPEATED if many else _Field.LABEL_OPTIONAL
            added = message.field.add(name=field, number=number, label=label)
            if plain in _SCALARS:
                added.type = _SCALARS[plain]
            else:
                added.type, added.type_name = _Field.TYPE_MESSAGE, f".{_PACKAGE}.{plain}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool
