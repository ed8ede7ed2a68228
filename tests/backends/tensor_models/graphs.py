"""Tiny ONNX graphs for the tests, with functions that run them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from penstock.core.backend import Outcome
from penstock.core.config import (
    ModelConfig,
    ModelInput,
    ModelOutput,
    Parameter,
)
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import DataType, Tensor

Shape = Sequence[int | str]
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "green", "blue", "one", "two", "three")


def value(name: str, kind: int, shape: Shape) -> Any:
    """An input or output of a graph; a string in `shape` is a variable dimension."""
    return helper.make_tensor_value_info(name, kind, list(shape))


def node(kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return helper.make_node(kind, list(inputs), list(outputs), **attributes)


def save(
    path: Path,
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    weights: dict[str, np.ndarray[Any, Any]] | None = None,
) -> Path:
    """Write a graph to `path`, and give the path back."""
    initializers = [numpy_helper.from_array(array, n) for n, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


def save_identity(path: Path, kind: int = TensorProto.FLOAT, shape: Shape = ("n", 2)) -> Path:
    """y = x"""
    return save(
        path, [node("Identity", "x", "y")], [value("x", kind, shape)], [value("y", kind, shape)]
    )


def save_external(path: Path, data: str) -> Path:
    """y = x + [1, 2], the numbers of which are in the file `data` beside the graph."""
    save(
        path,
        [node("Add", ["x", "w"], ["y"])],
        [value("x", TensorProto.FLOAT, ("n", 2))],
        [value("y", TensorProto.FLOAT, ("n", 2))],
        {"w": np.array([1, 2], np.float32)},
    )
    onnx.save(onnx.load(path), path, save_as_external_data=True, location=data, size_threshold=0)
    assert (path.parent / data).stat().st_size == 8
    return path


def save_sums(path: Path) -> Path:
    """sum = a + b, difference = a - b; both [n, 2]"""
    pair: Shape = ("n", 2)
    return save(
        path,
        [node("Add", "ab", ["sum"]), node("Sub", "ab", ["difference"])],
        [value("a", TensorProto.FLOAT, pair), value("b", TensorProto.FLOAT, pair)],
        [value("sum", TensorProto.FLOAT, pair), value("difference", TensorProto.FLOAT, pair)],
    )


def save_with_default(path: Path) -> Path:
    """y = x + b, where b [2] is 1 unless it is fed"""
    return save(
        path,
        [node("Add", "xb", "y")],
        [value("x", TensorProto.FLOAT, ("n", 2)), value("b", TensorProto.FLOAT, (2,))],
        [value("y", TensorProto.FLOAT, ("n", 2))],
        {"b": np.ones(2, np.float32)},
    )


def save_encoder(path: Path, *, token_types: bool = False, width: int = 8) -> Path:
    """EMBEDDING [n, width]: the mean of the vectors of the tokens that are not padding."""
    inputs = [value(n, TensorProto.INT64, ("n", "s")) for n in ("input_ids", "attention_mask")]
    nodes = [
        node("Gather", ["vectors", "input_ids"], ["words"]),
        node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["mask", "last"], ["mask3"]),
        node("Mul", ["words", "mask3"], ["kept"]),
        node("ReduceSum", ["kept", "middle"], ["total"], keepdims=0),
        node("ReduceSum", ["mask3", "middle"], ["count"], keepdims=0),
        node("Div", ["total", "count"], ["EMBEDDING"]),
    ]
    if token_types:
        inputs.append(value("token_type_ids", TensorProto.INT64, ("n", "s")))
    vectors = np.random.default_rng(7).normal(size=(len(WORDS), width)).astype(np.float32)
    axes = {"last": np.array([-1]), "middle": np.array([1])}
    outputs = [value("EMBEDDING", TensorProto.FLOAT, ("n", width))]
    return save(path, nodes, inputs, outputs, {"vectors": vectors, **axes})


def save_cross_encoder(path: Path) -> Path:
    """SCORE [n, 1]: of the words behind the first [SEP], how many are those before it, in each row.

    It counts equal tokens of both types, special ones left away, so order and length matter not.
    """
    names = ("input_ids", "attention_mask", "token_type_ids")
    nodes = [
        node("Cast", ["token_type_ids"], ["second"], to=TensorProto.FLOAT),
        node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        node("Gather", ["counted", "input_ids"], ["words"]),
        node("Mul", ["words", "mask"], ["kept"]),
        node("Mul", ["kept", "second"], ["others"]),
        node("Sub", ["kept", "others"], ["ones"]),
        node("Unsqueeze", ["input_ids", "last"], ["column"]),
        node("Unsqueeze", ["input_ids", "middle"], ["row"]),
        node("Equal", ["column", "row"], ["same"]),
        node("Cast", ["same"], ["equal"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["ones", "middle"], ["one"]),
        node("Unsqueeze", ["others", "last"], ["other"]),
        node("MatMul", ["one", "equal"], ["found"]),
        node("MatMul", ["found", "other"], ["total"]),
        node("Squeeze", ["total", "last"], ["SCORE"]),
    ]
    counted = np.array([word[0] != "[" for word in WORDS], np.float32)
    axes = {"last": np.array([-1]), "middle": np.array([1])}
    inputs = [value(name, TensorProto.INT64, ("n", "s")) for name in names]
    outputs = [value("SCORE", TensorProto.FLOAT, ("n", 1))]
    return save(path, nodes, inputs, outputs, {"counted": counted, **axes})


def save_image_tower(path: Path, *, width: int = 16) -> Path:
    """image_embeds [n, width], of length one, of pixel_values [n, 3, 32, 32]: patches, their mean.

    It has the tensors of CLIP's image tower; its weights are random.
    """
    random = np.random.default_rng(7)
    nodes = [
        node("Conv", ["pixel_values", "patches"], ["seen"], kernel_shape=[8, 8], strides=[8, 8]),
        node("Relu", ["seen"], ["bent"]),
        node("GlobalAveragePool", ["bent"], ["mean"]),
        node("Flatten", ["mean"], ["flat"]),
        node("MatMul", ["flat", "projection"], ["vectors"]),
        node("LpNormalization", ["vectors"], ["image_embeds"], axis=1, p=2),
    ]
    weights = {
        "patches": random.normal(size=(32, 3, 8, 8)).astype(np.float32),
        "projection": random.normal(size=(32, width)).astype(np.float32),
    }
    inputs = [value("pixel_values", TensorProto.FLOAT, ("n", 3, 32, 32))]
    return save(
        path, nodes, inputs, [value("image_embeds", TensorProto.FLOAT, ("n", width))], weights
    )


def save_tokenizer(path: Path, *, longest: int = 0, padded_to: int = 0) -> Path:
    """A tokenizer of whole words, [CLS] before and [SEP] after them."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    ids = {word: at for at, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    if longest:
        tokenizer.enable_truncation(max_length=longest)
    if padded_to:
        tokenizer.enable_padding(length=padded_to)
    path.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))
    return path


def tensor_in(name: str, datatype: DataType, *dims: int, **fields: Any) -> ModelInput:
    return ModelInput(name, datatype, dims=dims, **fields)


def tensor_out(name: str, datatype: DataType, *dims: int, **fields: Any) -> ModelOutput:
    return ModelOutput(name, datatype, dims=dims, **fields)


def parameters(**given: str) -> dict[str, Parameter]:
    """Free parameters; a double underscore stands for a dot."""
    return {name.replace("__", "."): Parameter(text) for name, text in given.items()}


def sums_config(max_batch_size: int = 8, **fields: Any) -> ModelConfig:
    """The configuration of `save_sums`."""
    return ModelConfig(
        name="sums",
        max_batch_size=max_batch_size,
        input=(tensor_in("a", DataType.FP32, 2), tensor_in("b", DataType.FP32, 2)),
        output=(tensor_out("sum", DataType.FP32, 2), tensor_out("difference", DataType.FP32, 2)),
        **fields,
    )


def identity_config(datatype: DataType, *dims: int, **fields: Any) -> ModelConfig:
    """The configuration of `save_identity`, batching."""
    return ModelConfig(
        name="same",
        max_batch_size=8,
        input=(tensor_in("x", datatype, *dims),),
        output=(tensor_out("y", datatype, *dims),),
        **fields,
    )


def text_config(**fields: Any) -> ModelConfig:
    """The configuration of `save_encoder` behind `save_tokenizer`."""
    given = parameters(penstock__tokenizer="tokenizer.json") | fields.pop("parameters", {})
    return ModelConfig(
        name="encoder",
        backend="onnxruntime",
        max_batch_size=fields.pop("max_batch_size", 16),
        input=(tensor_in("TEXT", DataType.BYTES, 1),),
        output=fields.pop("output", (tensor_out("EMBEDDING", DataType.FP32, 8),)),
        parameters=given,
        **fields,
    )


def pair_config(**fields: Any) -> ModelConfig:
    """The configuration of `save_cross_encoder` behind `save_tokenizer`."""
    names = ("QUERY", "PASSAGE")
    given = {"output": (tensor_out("SCORE", DataType.FP32, 1),), **fields}
    config = text_config(**given)
    return replace(config, input=tuple(tensor_in(name, DataType.BYTES, 1) for name in names))


def request(outputs: Sequence[str] = (), **arrays: Any) -> InferenceRequest:
    """A request of arrays or tensors by name of their input."""
    inputs = {n: a if isinstance(a, Tensor) else Tensor.from_numpy(a) for n, a in arrays.items()}
    return InferenceRequest("m", inputs=inputs, requested_outputs=tuple(outputs))


def tensor(outcome: Outcome, name: str) -> Tensor:
    """The output `name` of a response."""
    assert isinstance(outcome, InferenceResponse), outcome
    return outcome.outputs[name]
