"""Configurations in `examples/models`, checked by the server, and over graphs of their tensors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from backends.fil import forests
from backends.tensor_models.graphs import Shape, node, save, save_tokenizer, value
from backends.tensor_models.test_audio import FLOAT, sine, wav
from penstock.core.config import ModelConfig
from penstock.core.tensor import DataType
from penstock.models.config.defaults import normalized
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.repository.repository import ModelFiles, ModelRepository
from penstock.system.reaper import Reaper
from penstock.testing import running
from penstock_backends.fil import FilBackend
from penstock_backends.onnxruntime import OnnxRuntimeBackend
from penstock_backends.vllm import VllmBackend
from penstock_backends.vllm.arguments.engine_args import read_arguments

_ROOT = Path(__file__).parents[2]
_MODELS = _ROOT / "examples" / "models"
_REPOSITORY = ModelRepository([_MODELS])
_ENGINES = ("bert_reranker", "llama_3_1_8b", "llama_3_3_70b")
_VISION = "llama_3_2_11b_vision"
_FOREST = "recommender"


@dataclass(frozen=True, slots=True)
class _Graph:
    """The tensors of a model's graph, and a request's input."""

    inputs: Mapping[str, Shape]
    output: str
    shape: Sequence[int | str]
    request: Any


_TOKENS: Mapping[str, Shape] = {"input_ids": ("n", "s"), "attention_mask": ("n", "s")}
_TEXTS = np.array([[b"one red"], [b"two"]], np.object_)


def _pixels(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


def _spoken() -> np.ndarray[Any, Any]:
    """Two files, of which the second is twice as long."""
    sounds = [sine(440, 16_000, seconds) for seconds in (0.25, 0.5)]
    return np.array([[wav(sound, code=FLOAT)] for sound in sounds], np.object_)


_GRAPHS = {
    "bge_m3": _Graph(_TOKENS, "sentence_embedding", ("n", 1024), _TEXTS),
    "clip_text": _Graph(_TOKENS, "text_embeds", ("n", 512), _TEXTS),
    "clip_image": _Graph(
        {"pixel_values": ("n", 3, 224, 224)}, "image_embeds", ("n", 512), _pixels(2, 3, 224, 224)
    ),
    "bert_classifier": _Graph(
        {**_TOKENS, "token_type_ids": ("n", "s")}, "logits", ("n", 2), _TEXTS
    ),
    "densenet_onnx": _Graph(
        {"data_0": (1, 3, 224, 224)}, "fc6_1", (1, 1000, 1, 1), _pixels(1, 3, 224, 224)
    ),
    "inception_onnx": _Graph(
        {"input": ("n", 299, 299, 3)},
        "InceptionV3/Predictions/Softmax",
        ("n", 1001),
        _pixels(2, 299, 299, 3),
    ),
    "speech_commands": _Graph({"input_values": ("n", "t")}, "logits", ("n", 12), _spoken()),
}


def _files(name: str) -> ModelFiles:
    return _REPOSITORY.read(name)


def _config(name: str) -> ModelConfig:
    return normalized(_files(name).config)


def _write(folder: Path, graph: _Graph) -> None:
    """A graph of a few bytes: each number of the output is the mean of a row of the first input."""
    (first, shape), *_ = graph.inputs.items()
    kind = TensorProto.INT64 if "s" in shape else TensorProto.FLOAT
    axes = np.arange(1, len(shape))
    nodes = [
        node("Cast", [first], ["numbers"], to=TensorProto.FLOAT),
        node("ReduceMean", ["numbers", "axes"], ["mean"], keepdims=1),
        *([node("Flatten", ["mean"], ["row"], axis=1)] if len(graph.shape) == 2 else []),
        node("Add", ["row" if len(graph.shape) == 2 else "mean", "zeros"], [graph.output]),
    ]
    fixed = [size for size in graph.shape[1:] if isinstance(size, int)]
    save(
        folder / "model.onnx",
        nodes,
        [value(name, kind, size) for name, size in graph.inputs.items()],
        [value(graph.output, TensorProto.FLOAT, graph.shape)],
        {"axes": axes, "zeros": np.zeros(fixed, np.float32)},
    )
    save_tokenizer(folder / "tokenizer.json")


def test_each_model_is_checked() -> None:
    assert _REPOSITORY.names() == sorted([*_ENGINES, *_GRAPHS, _VISION, _FOREST])


@pytest.mark.parametrize("name", _REPOSITORY.names())
async def test_server_does_not_refuse_the_configuration(name: str) -> None:
    builder = VersionBuilder(lambda _: {}, Reaper())
    assert await builder.refusal(_files(name)) is None


@pytest.mark.engine
@pytest.mark.parametrize(("name", "graph"), _GRAPHS.items(), ids=_GRAPHS)
async def test_configuration_fits_a_graph_of_the_tensors(
    name: str, graph: _Graph, tmp_path: Path
) -> None:
    _write(tmp_path, graph)
    config = _config(name)
    async with running(OnnxRuntimeBackend, config, tmp_path) as instance:
        (answer,) = [a async for a in instance.infer({config.input[0].name: graph.request})]
    rows = 1 if graph.shape[0] == 1 else 2
    assert answer.outputs[graph.output].shape == (rows, *graph.shape[1:])


@pytest.mark.engine
async def test_forest_ranks_candidates(tmp_path: Path) -> None:
    pytest.importorskip("treelite", reason="treelite is not installed")
    rows = np.random.default_rng(5).normal(size=(64, 24)).astype(np.float32)
    predict = forests.xgboost(rows, "regression", tmp_path / "xgboost.ubj")
    async with running(FilBackend, _config(_FOREST), tmp_path) as instance:
        (answer,) = [each async for each in instance.infer({"input__0": rows})]
    scores = answer.outputs["output__0"].numpy()
    np.testing.assert_allclose(scores[:, 0], predict(rows), atol=1e-6)


@pytest.mark.contract("SD-13")
@pytest.mark.parametrize(
    "use", ["LLM serving", "chatbots", "RAG", "recommendation", "vision", "speech", "agents"]
)
def test_each_use_has_an_example_that_is_checked(use: str) -> None:
    """Of the table of uses: folders of the repository, with a configuration or a file to start."""
    table = (_ROOT / "docs" / "deployment.md").read_text().partition("| use | example |")[2]
    rows = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|", table.partition("\n\n")[0], re.MULTILINE))
    named = re.findall(r"`((?:examples|deploy)/[\w./-]+)`", rows[use])
    assert named
    assert [each for each in named if not any(_checked(_ROOT / each))] == []


def _checked(folder: Path) -> Iterator[Path]:
    yield from (*folder.rglob("config.pbtxt"), *folder.glob("compose.yaml"))


@pytest.mark.engine
async def test_configuration_that_does_not_fit_its_graph_is_refused(tmp_path: Path) -> None:
    """What the test above is worth."""
    _write(tmp_path, _GRAPHS["clip_text"])
    with pytest.raises(Exception, match="unexpected inference output 'sentence_embedding'"):
        async with running(OnnxRuntimeBackend, _config("bge_m3"), tmp_path):
            pass


@pytest.mark.parametrize("name", _ENGINES)
def test_engine_knows_the_arguments(name: str) -> None:
    """By the page of vLLM's arguments, which a test holds against vLLM itself."""
    page = (_ROOT / "docs" / "reference" / "vllm-arguments.md").read_text()
    known = dict(re.findall(r"^\| `(\w+)` \| (\w+)", page, re.MULTILINE))
    kinds = {"text": str, "number": int | float, "boolean": bool, "list": list, "object": dict}
    values = read_arguments(_files(name).versions[1]).values
    assert {key for key in values if not isinstance(values[key], kinds[known[key]])} == set()
    assert values["model"]


@pytest.mark.parametrize("name", _ENGINES)
async def test_language_model_has_the_usual_tensors(name: str) -> None:
    files = _files(name)
    config = await VllmBackend.complete_config(files.config, files.versions[1], {})
    VllmBackend.check_config(normalized(config))
    assert config.inputs_by_name["text_input"].data_type is DataType.BYTES
    assert config.outputs_by_name["text_output"].data_type is DataType.BYTES
    assert "SCORE" in config.outputs_by_name
    assert config.decoupled


def test_model_in_python_reads_the_inputs_that_it_declares() -> None:
    files = _files(_VISION)
    code = (files.versions[1] / "model.py").read_text()
    read = set(re.findall(r'get_input_tensor_by_name\(request, "(\w+)"\)', code))
    sent = set(re.findall(r'pb_utils\.Tensor\("(\w+)"', code))
    assert read == files.config.inputs_by_name.keys()
    assert sent == files.config.outputs_by_name.keys()
    assert files.config.decoupled


@pytest.mark.parametrize("name", ["bert_classifier", "speech_commands"])
def test_labels_are_as_many_as_classes(name: str) -> None:
    (output,) = _config(name).output
    labels = (_MODELS / name / output.label_filename).read_text().splitlines()
    assert output.dims == (len(labels),)
