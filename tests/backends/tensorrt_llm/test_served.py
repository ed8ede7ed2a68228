"""The whole path over gRPC: a real server, a stock client, and the stand-in in a model process."""

from __future__ import annotations

import itertools
import json
import queue
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

from backends.tensorrt_llm.conftest import PACKAGE, YAML
from harness.serving import Served, serving, wait_until
from tracing.served.calls import EXPLAIN, stub

_SAMPLING = """
    best_of temperature top_k top_p frequency_penalty presence_penalty max_tokens stop seed
    exclude_input_from_output return_perf_metrics logits_post_processor_name
"""
_OTHER_INPUTS = """
    text_input image_url streaming return_finish_reason return_stop_reason
    return_cumulative_logprob stop lora_id lora_name lora_path lora_ckpt_source
"""
_INPUTS = {*_OTHER_INPUTS.split(), *(f"sampling_param_{name}" for name in _SAMPLING.split())}
_OUTPUTS = set(
    """
    text_output finish_reason stop_reason cumulative_logprob kv_cache_reused_block
    kv_cache_missed_block kv_cache_alloc_new_blocks kv_cache_alloc_total_blocks kv_cache_hit_rate
    arrival_time_ns first_scheduled_time_ns first_token_time_ns last_token_time_ns
    acceptance_rate total_accepted_draft_tokens total_draft_tokens
    """.split()
)
"""The tensors of Triton's model, by name."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of `lm`, decoupled, and `whole`, which is not."""
    repository = tmp_path_factory.mktemp("repository")
    for name, text in (("lm", YAML), ("whole", YAML.replace("true", "false"))):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "1" / "model.yaml").write_text(text)
        (repository / name / "config.pbtxt").write_text('backend: "tensorrt_llm"')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(PACKAGE))
        patch.setenv("OMPI_COMM_WORLD_RANK", "0")
        with serving(repository, repository.with_suffix(".log")) as served:
            yield served


def tensors(prompt: str, **numbers: Any) -> list[Any]:
    """Inputs of a request: a text, flags, and `max_tokens`."""
    given = {"text_input": np.array([prompt.encode()], np.object_)}
    for name, value in numbers.items():
        if name == "max_tokens":
            given[f"sampling_param_{name}"] = np.array([value], np.int32)
        else:
            given[name] = np.array([value])
    made = []
    for name, value in given.items():
        kind = {"O": "BYTES", "b": "BOOL", "i": "INT32"}[value.dtype.kind]
        made.append(InferInput(name, value.shape, kind).set_data_from_numpy(value))
    return made


def text(result: Any) -> str:
    return str(result.as_numpy("text_output")[0].decode())


class Stream:
    """The answers of a stream, as they come."""

    def __init__(self, client: Any) -> None:
        self.answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
        client.start_stream(callback=lambda result, error: self.answers.put((result, error)))

    def next(self) -> tuple[Any, Any]:
        return self.answers.get(timeout=30)


def number(server: Served, line: str) -> float:
    """The value of a line of the metrics page, -1 without it."""
    with urllib.request.urlopen(server.metrics) as answer:
        page = answer.read().decode()
    found = [one for one in page.splitlines() if one.startswith(line)]
    return float(found[0].rpartition(" ")[2]) if found else -1.0


@pytest.mark.contract("TL-02", "TL-03")
def test_an_answer_in_one_piece(client: Any) -> None:
    result = client.infer("whole", tensors("hello", max_tokens=3))
    assert text(result) == " w0 w1 w2"


@pytest.mark.parametrize("asked", [True, False])
def test_a_unary_call_has_the_numbers_of_its_generation_if_asked(
    server: Served, asked: bool
) -> None:
    message = pb.ModelInferRequest(model_name="whole")
    message.inputs.add(name="text_input", datatype="BYTES", shape=[1])
    message.inputs.add(name="sampling_param_max_tokens", datatype="INT32", shape=[1])
    message.raw_input_contents.extend([b"\5\0\0\0hello", b"\3\0\0\0"])
    channel, service = stub(server.grpc)
    with channel:
        metadata = EXPLAIN if asked else ()
        _, call = service.ModelInfer.with_call(message, metadata=metadata, timeout=60)
        trailing = dict(call.trailing_metadata())
    numbers = {name: value for name, value in trailing.items() if name.startswith("x-")}
    if not asked:
        assert numbers == {}
        return
    (one,) = json.loads(trailing["penstock-explain"])["requests"]
    assert (numbers["x-prompt-tokens"], numbers["x-generated-tokens"]) == ("1", "3")
    assert numbers["x-wasted-tokens"] == "0"
    assert float(numbers["x-total-time"]) == pytest.approx(
        one["penstock.llm.total_time_ms"], abs=0.001
    )
    assert numbers["x-cached-tokens"] == "0"
    assert "x-queue-time" not in numbers  # it does not tell


@pytest.mark.contract("TL-03", "TL-04")
def test_the_tensors_are_declared(client: Any) -> None:
    metadata = client.get_model_metadata("lm", as_json=True)
    assert metadata["inputs"][0] == {"name": "text_input", "datatype": "BYTES", "shape": ["-1"]}
    assert {one["name"] for one in metadata["inputs"]} >= _INPUTS
    outputs = {one["name"]: one["datatype"] for one in metadata["outputs"]}
    assert outputs.keys() == _OUTPUTS
    assert outputs["cumulative_logprob"] == "FP32"
    assert outputs["arrival_time_ns"] == "INT64"


@pytest.mark.contract("TL-05")
def test_a_stream_repeats_the_text_so_far(client: Any) -> None:
    stream = Stream(client)
    client.async_stream_infer("lm", tensors("hello", streaming=True, max_tokens=20))
    texts: list[str] = []
    while not texts or texts[-1].count(" w") < 20:
        result, error = stream.next()
        assert error is None
        texts.append(text(result))
    assert all(after.startswith(before) for before, after in itertools.pairwise(texts))
    client.stop_stream()


@pytest.mark.contract("TL-05", "TL-07")
def test_a_stream_needs_a_decoupled_model(client: Any) -> None:
    with pytest.raises(InferenceServerException) as refused:
        client.infer("whole", tensors("hello", streaming=True))
    assert refused.value.message().endswith(
        "Error generating request: Streaming is only supported in decoupled mode."
    )


@pytest.mark.contract("TL-06")
def test_a_stop_request_ends_both(server: Served, client: Any) -> None:
    stream = Stream(client)
    endless = tensors("@endless", streaming=True)
    client.async_stream_infer("lm", endless, request_id="7")
    _, error = stream.next()
    assert error is None
    with InferenceServerClient(server.grpc) as other:
        stopping = Stream(other)
        other.async_stream_infer("lm", tensors("x", stop=True), request_id="7")
        assert "Request cancelled by client" in str(stopping.next()[1])
        other.stop_stream()
    while error is None:
        _, error = stream.next()
    assert "Request cancelled by client" in str(error)
    client.stop_stream()
    with pytest.raises(InferenceServerException) as refused:
        client.infer("whole", tensors("x", stop=True))
    assert refused.value.message().endswith(
        "A request id must be provided for request cancellation"
    )
    with pytest.raises(InferenceServerException) as cancelled:
        client.infer("whole", tensors("x", stop=True), request_id="9")
    assert cancelled.value.status() == f"StatusCode.{grpc.StatusCode.CANCELLED.name}"


@pytest.mark.contract("TL-23", "TL-24", "TL-26")
def test_a_client_that_leaves_frees_the_engine(server: Served, client: Any) -> None:
    active = 'nv_trt_llm_request_metrics{request_type="active",model="lm"'
    used = 'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="lm"'
    stream = Stream(client)
    client.async_stream_infer("lm", tensors("@endless", streaming=True))
    assert stream.next()[1] is None
    wait_until(lambda: number(server, active) == 1)
    assert number(server, used) == 1
    assert number(server, 'penstock_llm_running_requests{model="lm"') == 1
    client.stop_stream(cancel_requests=True)
    wait_until(lambda: number(server, active) == 0)
    wait_until(lambda: number(server, used) == 0)
    assert number(server, 'penstock_llm_running_requests{model="lm"') == 0


@pytest.mark.contract("TL-07")
def test_an_error_harms_nobody(client: Any) -> None:
    for prompt in ("@refuse", "@fail", ""):
        with pytest.raises(InferenceServerException, match="Error generating request: "):
            client.infer("whole", tensors(prompt, max_tokens=4))
    assert text(client.infer("whole", tensors("hello", max_tokens=1))) == " w0"


def test_an_engine_that_dies_is_started_again(server: Served, client: Any) -> None:
    with pytest.raises(InferenceServerException, match="unhealthy TensorRT-LLM engine"):
        client.infer("whole", tensors("@die", max_tokens=9))
    wait_until(
        lambda: (
            not client.is_model_ready("whole")
            or number(server, 'penstock_instance_restarts_total{model="whole"') > 0
        )
    )

    def answers() -> bool:
        try:
            return text(client.infer("whole", tensors("hello", max_tokens=1))) == " w0"
        except InferenceServerException:
            return False

    wait_until(answers)
    assert client.is_model_ready("lm")


@pytest.mark.slow
def test_without_the_package_the_model_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    version = tmp_path / "models" / "lm" / "1"
    version.mkdir(parents=True)
    (version / "model.yaml").write_text("model: tiny")
    (version.parent / "config.pbtxt").write_text('backend: "tensorrt_llm"')
    log = tmp_path / "log"
    with serving(tmp_path / "models", log, "--exit-on-error=false") as served:
        with InferenceServerClient(served.grpc) as client:
            (row,) = client.get_model_repository_index(as_json=True)["models"]
        assert "pip install 'penstock[trtllm]'" in row["reason"]
