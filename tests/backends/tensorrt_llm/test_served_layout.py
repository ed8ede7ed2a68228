"""A five-model repository as users have it: their configurations and Python models, our engine."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput

from backends.tensorrt_llm.conftest import PACKAGE, YAML
from backends.tensorrt_llm.test_served import Stream
from harness.serving import Served, serving

_SCALARS = ("input_lengths", "request_output_len")
_ENGINE = (
    """
name: "tensorrt_llm"
backend: "tensorrtllm"
max_batch_size: 8
model_transaction_policy { decoupled: DECOUPLED }
dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 100 }
input { name: "input_ids" data_type: TYPE_INT32 dims: [ -1 ] allow_ragged_batch: true }
"""
    + "".join(
        f'input {{ name: "{name}" data_type: TYPE_INT32 dims: [ 1 ] reshape: {{ shape: [ ] }} }}\n'
        for name in _SCALARS
    )
    + """
input { name: "streaming" data_type: TYPE_BOOL dims: [ 1 ] reshape: { shape: [ ] } optional: true }
output { name: "output_ids" data_type: TYPE_INT32 dims: [ -1, -1 ] }
output { name: "sequence_length" data_type: TYPE_INT32 dims: [ -1 ] }
instance_group { count: 1 kind: KIND_CPU }
parameters { key: "gpt_model_path" value: { string_value: "${engine_dir}" } }
parameters { key: "exclude_input_in_output" value: { string_value: "true" } }
"""
)

_STEP = """
name: "{name}"
backend: "python"
max_batch_size: 8
"""
_PREPROCESSING = """
input { name: "QUERY" data_type: TYPE_STRING dims: [ 1 ] }
input { name: "REQUEST_OUTPUT_LEN" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "INPUT_ID" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "REQUEST_INPUT_LEN" data_type: TYPE_INT32 dims: [ 1 ] }
output { name: "OUT_LEN" data_type: TYPE_INT32 dims: [ 1 ] }
"""
_POSTPROCESSING = """
input { name: "TOKENS_BATCH" data_type: TYPE_INT32 dims: [ -1, -1 ] }
input { name: "SEQUENCE_LENGTH" data_type: TYPE_INT32 dims: [ -1 ] }
output { name: "OUTPUT" data_type: TYPE_STRING dims: [ -1 ] }
"""
_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils


def get(request, name):
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy()


class TritonPythonModel:
    def execute(self, requests):
        return [pb_utils.InferenceResponse(self.outputs(request)) for request in requests]
"""
_TOKENISE = """
    def outputs(self, request):
        words = get(request, "QUERY")[0][0].decode().split()
        return [
            pb_utils.Tensor("INPUT_ID", np.arange(len(words), dtype=np.int32)[None]),
            pb_utils.Tensor("REQUEST_INPUT_LEN", np.array([[len(words)]], np.int32)),
            pb_utils.Tensor("OUT_LEN", get(request, "REQUEST_OUTPUT_LEN")),
        ]
"""
_DETOKENISE = """
    def outputs(self, request):
        rows, lengths = get(request, "TOKENS_BATCH")[0], get(request, "SEQUENCE_LENGTH")[0]
        texts = ["".join(f" <{i}>" for i in r[:n]).encode() for r, n in zip(rows, lengths)]
        return [pb_utils.Tensor("OUTPUT", np.array([texts], np.object_))]
"""
_ENSEMBLE = """
name: "ensemble"
platform: "ensemble"
max_batch_size: 8
input { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] }
input { name: "max_tokens" data_type: TYPE_INT32 dims: [ 1 ] }
input { name: "stream" data_type: TYPE_BOOL dims: [ 1 ] optional: true }
output { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] }
ensemble_scheduling {
  step {
    model_name: "preprocessing" model_version: -1
    input_map { key: "QUERY" value: "text_input" }
    input_map { key: "REQUEST_OUTPUT_LEN" value: "max_tokens" }
    output_map { key: "INPUT_ID" value: "_INPUT_ID" }
    output_map { key: "REQUEST_INPUT_LEN" value: "_REQUEST_INPUT_LEN" }
    output_map { key: "OUT_LEN" value: "_OUT_LEN" }
  }
  step {
    model_name: "tensorrt_llm" model_version: -1
    input_map { key: "input_ids" value: "_INPUT_ID" }
    input_map { key: "input_lengths" value: "_REQUEST_INPUT_LEN" }
    input_map { key: "request_output_len" value: "_OUT_LEN" }
    input_map { key: "streaming" value: "stream" }
    output_map { key: "output_ids" value: "_TOKENS_BATCH" }
    output_map { key: "sequence_length" value: "_SEQUENCE_LENGTH" }
  }
  step {
    model_name: "postprocessing" model_version: -1
    input_map { key: "TOKENS_BATCH" value: "_TOKENS_BATCH" }
    input_map { key: "SEQUENCE_LENGTH" value: "_SEQUENCE_LENGTH" }
    output_map { key: "OUTPUT" value: "text_output" }
  }
}
"""


def write(repository: Path, name: str, config: str, **files: str) -> None:
    version = repository / name / "1"
    version.mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(config)
    for file, content in files.items():
        (version / file.replace("_", ".")).write_text(content)


@pytest.fixture(scope="module", params=["true", "false"])
def server(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[Served, bool]]:
    """The repository, whose engine is decoupled or not, and beside it the face of ours."""
    repository = tmp_path_factory.mktemp("layout")
    tokenise = _STEP.format(name="preprocessing") + _PREPROCESSING
    detokenise = _STEP.format(name="postprocessing") + _POSTPROCESSING
    engine = _ENGINE.replace("DECOUPLED", request.param)
    write(repository, "preprocessing", tokenise, model_py=_MODEL + _TOKENISE)
    write(repository, "tensorrt_llm", engine, model_yaml=YAML)
    write(repository, "postprocessing", detokenise, model_py=_MODEL + _DETOKENISE)
    write(repository, "ensemble", _ENSEMBLE)
    bls = 'backend: "tensorrt_llm"'
    whole = YAML.replace("decoupled: true", f"decoupled: {request.param}")
    write(repository, "tensorrt_llm_bls", bls, model_yaml=whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(PACKAGE))
        with serving(repository, repository.with_suffix(".log")) as served:
            yield served, request.param == "true"


def tensors(prompt: str, max_tokens: int, *lead: int, stream: bool = False) -> list[Any]:
    """Inputs of a text, with the batch dimension in front if there is one."""
    given = {
        "text_input": np.array([prompt.encode()], np.object_),
        "max_tokens": np.array([max_tokens], np.int32),
        **({"stream": np.array([True])} if stream else {}),
    }
    made = []
    for name, value in given.items():
        kind = {"O": "BYTES", "b": "BOOL", "i": "INT32"}[value.dtype.kind]
        shaped = value.reshape(*lead, 1)
        made.append(InferInput(name, shaped.shape, kind).set_data_from_numpy(shaped))
    return made


def streamed(client: Any, model: str, inputs: list[Any]) -> list[str]:
    """The texts of a stream, up to its final response."""
    stream = Stream(client)
    client.async_stream_infer(model, inputs, enable_empty_final_response=True)
    texts: list[str] = []
    while True:
        result, error = stream.next()
        assert error is None
        answer = result.get_response()
        if answer.outputs:
            texts.append(result.as_numpy("text_output").ravel()[0].decode())
        if answer.parameters["triton_final_response"].bool_param:
            client.stop_stream()
            return texts


@pytest.mark.contract("TL-01", "TL-10", "TL-12", "R-21")
@pytest.mark.slow
def test_an_ensemble_of_the_users_own_models(server: tuple[Served, bool]) -> None:
    served, decoupled = server
    with InferenceServerClient(served.grpc) as client:
        inputs = tensors("a b c", 3, 1, stream=decoupled)
        texts = streamed(client, "ensemble", inputs)
    assert "".join(texts) == " <1000> <1001> <1002>"
    assert decoupled or len(texts) == 1


@pytest.mark.contract("TL-14", "R-21")
def test_a_face_of_ours_where_there_are_no_models(server: tuple[Served, bool]) -> None:
    served, decoupled = server
    with InferenceServerClient(served.grpc) as client:
        texts = streamed(client, "tensorrt_llm_bls", tensors("a b", 3, stream=decoupled))
    assert "".join(texts) == (" w0 w1 w2" if decoupled else "a b w0 w1 w2")


@pytest.mark.contract("TL-14")
@pytest.mark.parametrize("model", ["ensemble", "tensorrt_llm_bls"])
def test_clients_of_generate_are_served(server: tuple[Served, bool], model: str) -> None:
    served, _ = server
    body = {"text_input": "a", "max_tokens": 2, "bad_words": "", "stop_words": ""}
    if model == "ensemble":
        body = {name: body[name] for name in ("text_input", "max_tokens")}
    asked = urllib.request.Request(
        f"http://{served.http}/v2/models/{model}/generate",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(asked) as answer:
        text = json.loads(answer.read())["text_output"]
    assert text == (" <1000> <1001>" if model == "ensemble" else "a w0 w1")


def test_tokens_are_asked_for_directly(server: tuple[Served, bool]) -> None:
    served, _ = server
    given = {
        "input_ids": np.array([[5, 6]], np.int32),
        "input_lengths": np.array([[2]], np.int32),
        "request_output_len": np.array([[2]], np.int32),
    }
    inputs = [
        InferInput(name, value.shape, "INT32").set_data_from_numpy(value)
        for name, value in given.items()
    ]
    with InferenceServerClient(served.grpc) as client:
        stream = Stream(client)
        client.async_stream_infer("tensorrt_llm", inputs)
        result, error = stream.next()
        assert error is None
        assert result.as_numpy("output_ids").tolist() == [[[1000, 1001]]]
        client.stop_stream()
    assert served.process.poll() is None
