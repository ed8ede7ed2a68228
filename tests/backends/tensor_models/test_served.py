"""Fields of the configuration of a graph or an encoder, as a server obeys them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock.in_process as tritonserver
from backends.tensor_models import graphs
from backends.tensor_models.test_ragged import save_sums, sums_config
from penstock.core.config import DynamicBatching, ModelConfig, config_to_json
from penstock.core.tensor import DataType

pytestmark = pytest.mark.slow

_PADDED = graphs.identity_config(
    DataType.FP32,
    -1,
    parameters=graphs.parameters(penstock__padding="x=7", penstock__padded_outputs="y"),
    dynamic_batching=DynamicBatching((2,), 20_000_000),
)
_PADDED = replace(_PADDED, input=(replace(_PADDED.input[0], allow_ragged_batch=True),))
_BOUNDS: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "short": {"penstock__max_tokens": "3"},
    "few": {"penstock__max_texts": "2"},
    "small": {"penstock__max_text_characters": "5"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tritonserver.Server]:
    models = tmp_path_factory.mktemp("models")
    save_sums(models / "sums" / "1")
    (models / "sums" / "1" / "model.onnx").rename(models / "sums" / "1" / "own.onnx")
    _write(models / "sums", replace(sums_config(), default_model_filename="own.onnx"))
    graphs.save_identity(models / "padded" / "1" / "model.onnx", shape=("n", "s"))
    _write(models / "padded", _PADDED)
    for name, given in _BOUNDS.items():
        graphs.save_encoder(models / name / "1" / "model.onnx")
        graphs.save_tokenizer(models / name / "1" / "vocabulary.json")
        own = {"penstock__tokenizer": "vocabulary.json", **given}
        config = graphs.text_config(max_batch_size=0, parameters=graphs.parameters(**own))
        text = replace(config.input[0], dims=(-1,))
        vector = replace(config.output[0], dims=(-1, 8))
        _write(models / name, replace(config, input=(text,), output=(vector,)))
    mode = tritonserver.ModelControlMode.EXPLICIT
    with tritonserver.Server(model_repository=str(models), model_control_mode=mode) as server:
        for folder in models.iterdir():
            server.load(folder.name, {"config": (folder / "config.json").read_text()})
        yield server


def _write(folder: Path, config: ModelConfig) -> None:
    named = replace(config, name=folder.name, backend="onnxruntime")
    (folder / "config.json").write_text(json.dumps(config_to_json(named)))


def _answer(responses: tritonserver.ResponseIterator, name: str) -> Any:
    (response,) = responses
    return np.from_dlpack(response.outputs[name])


@pytest.mark.contract("C-12", "C-18", "C-19", "C-20")
def test_a_batch_input_bounds_requests_and_a_batch_output_is_split(
    server: tritonserver.Server,
) -> None:
    inputs = {"x": np.array([[1, 2, 3]], np.float32)}
    (response,) = server.model("sums").infer(inputs=inputs)
    assert np.from_dlpack(response.outputs["sum"]).tolist() == [[6]]
    assert np.from_dlpack(response.outputs["twice"]).tolist() == [[2, 4, 6]]


def test_padded_requests_share_a_batch_and_get_their_own_length_back(
    server: tritonserver.Server,
) -> None:
    model = server.model("padded")
    both = [model.infer(inputs={"x": np.ones((1, length), np.float32)}) for length in (2, 3)]
    assert [_answer(one, "y").tolist() for one in both] == [[[1, 1]], [[1, 1, 1]]]
    (counted,) = model.statistics()["model_stats"]
    assert counted["execution_count"] == 1


def test_texts_are_cut_after_the_tokens_of_the_parameter(server: tritonserver.Server) -> None:
    long, short = (
        _answer(server.model("short").infer(inputs={"TEXT": [text]}), "EMBEDDING")
        for text in ("red blue green", "red")
    )
    np.testing.assert_allclose(long, short, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "texts", "refusal"),
    [("few", ["red"] * 3, "3 texts|at most 2|2 texts"), ("small", ["red blue"], "5 characters")],
)
def test_texts_are_bounded_by_the_parameters(
    server: tritonserver.Server, model: str, texts: list[str], refusal: str
) -> None:
    assert _answer(server.model("plain").infer(inputs={"TEXT": texts}), "EMBEDDING").size
    with pytest.raises(tritonserver.TritonError, match=refusal):
        _answer(server.model(model).infer(inputs={"TEXT": texts}), "EMBEDDING")
