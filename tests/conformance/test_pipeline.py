"""A question through an encoder, a model in Python and a language model, all of it one model."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.serving import Served, serving, wait_until

pytestmark = pytest.mark.contract("E-22")

# Finds what fits an embedding; here, that it is one.
_RETRIEVE = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        return [self.respond(request) for request in requests]

    def respond(self, request):
        question = pb_utils.get_input_tensor_by_name(request, "QUESTION").as_numpy()
        embedding = pb_utils.get_input_tensor_by_name(request, "EMBEDDING").as_numpy()
        assert embedding.shape == (384,) and abs(np.linalg.norm(embedding) - 1) < 1e-3
        prompt = np.array([b"The file is " + question[0]], dtype=np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("PROMPT", prompt)])
"""

_RETRIEVE_CONFIG = """
backend: "python"
input [
  { name: "QUESTION" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "EMBEDDING" data_type: TYPE_FP32 dims: [ 384 ] }
]
output [ { name: "PROMPT" data_type: TYPE_STRING dims: [ 1 ] } ]
"""

_PIPELINE = """
platform: "ensemble"
input [
  { name: "question" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "stream" data_type: TYPE_BOOL dims: [ 1 ] optional: true },
  { name: "sampling_parameters" data_type: TYPE_STRING dims: [ 1 ] optional: true }
]
output [
  { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] },
  { name: "num_output_tokens" data_type: TYPE_UINT32 dims: [ -1 ] }
]
ensemble_scheduling { step [
  { model_name: "tiny_llm" model_version: -1
    input_map { key: "text_input" value: "prompt" }
    input_map { key: "stream" value: "stream" }
    input_map { key: "sampling_parameters" value: "sampling_parameters" }
    output_map { key: "text_output" value: "text_output" }
    output_map { key: "num_output_tokens" value: "num_output_tokens" } },
  { model_name: "retrieve" model_version: -1
    input_map { key: "QUESTION" value: "question" }
    input_map { key: "EMBEDDING" value: "embedding" }
    output_map { key: "PROMPT" value: "prompt" } },
  { model_name: "minilm" model_version: -1
    input_map { key: "TEXT" value: "question" }
    output_map { key: "EMBEDDING" value: "embedding" } }
] }
"""


@pytest.fixture(scope="module")
def pipeline(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server over the encoder, the language model and what is between them."""
    directory = tmp_path_factory.mktemp("pipeline")
    for name in ("tiny_llm", "minilm"):
        shutil.copytree(demo / name, directory / "models" / name)
    for name, config in {"retrieve": _RETRIEVE_CONFIG, "rag": _PIPELINE}.items():
        (directory / "models" / name / "1").mkdir(parents=True)
        (directory / "models" / name / "config.pbtxt").write_text(config)
    (directory / "models" / "retrieve" / "1" / "model.py").write_text(_RETRIEVE)
    with serving(directory / "models", directory / "log") as server:
        yield server


def _asked(**sampling: Any) -> dict[str, Any]:
    """What is said about the answer, to the pipeline as to the language model."""
    parameters = {"max_tokens": 24, "temperature": 0, "ignore_eos": True, **sampling}
    return {"stream": True, "sampling_parameters": json.dumps(parameters)}


def _events(server: Served, model: str, body: Any) -> Generator[dict[str, Any], None, None]:
    """Server-sent events of `generate_stream`, as they come."""
    url = f"http://{server.http}/v2/models/{model}/generate_stream"
    request = urllib.request.Request(url, json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as reply:
        for line in reply:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def test_tokens_stream_through_the_pipeline(pipeline: Served) -> None:
    direct = list(_events(pipeline, "tiny_llm", {"text_input": "The file is open", **_asked()}))
    through = list(_events(pipeline, "rag", {"question": "open", **_asked()}))
    assert "".join(e["text_output"] for e in through) == "".join(e["text_output"] for e in direct)
    assert len(through) > 1  # however many tokens came together
    assert "num_output_tokens" not in through[0]  # nobody asked the model to tell it


def test_a_client_that_leaves_stops_the_language_model(pipeline: Served) -> None:
    events = _events(pipeline, "rag", {"question": "open", **_asked(max_tokens=900)})
    next(events)
    events.close()
    wait_until(lambda: _cancelled(pipeline, "tiny_llm") == _cancelled(pipeline, "rag") == 1)


def _cancelled(server: Served, model: str) -> float:
    """Requests to a model whose client has left, as the metrics have it."""
    with urllib.request.urlopen(server.metrics, timeout=30) as page:
        lines = page.read().decode().splitlines()
    wanted = f'nv_inference_request_failure{{model="{model}"', 'reason="CANCELED"'
    return sum(float(line.split()[-1]) for line in lines if all(part in line for part in wanted))
