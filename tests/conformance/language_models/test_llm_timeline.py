"""The timeline of a request to a language model, whose engine runs in a process of its own."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from harness.serving import Served, wait_until
from tracing.served.calls import EXPLAIN, explanations, stub

PROMPT = "The with statement is used to"
SAMPLING = {"max_tokens": 12, "temperature": 0, "ignore_eos": True}

HEADERS = {
    "x-queue-time": "penstock.llm.queue_time_ms",
    "x-time-to-first-token": "penstock.llm.time_to_first_token_ms",
    "x-time-per-token": "penstock.llm.time_per_output_token_ms",
    "x-total-time": "penstock.llm.total_time_ms",
    "x-prompt-tokens": "gen_ai.usage.input_tokens",
    "x-cached-tokens": "gen_ai.usage.cache_read.input_tokens",
    "x-generated-tokens": "gen_ai.usage.output_tokens",
    "x-wasted-tokens": "penstock.llm.wasted_tokens",
}
"""What each header says, as the explanation has it."""


def tokens(server: Served) -> tuple[float, float]:
    """Tokens of prompts and of answers, as the metrics count them."""
    with urllib.request.urlopen(server.metrics, timeout=60) as reply:
        lines = reply.read().decode().splitlines()
    names = ("prefill", "generation")
    return tuple(  # type: ignore[return-value]
        next(
            float(line.rpartition(" ")[2])
            for line in lines
            if line.startswith(f'penstock_llm_{name}_tokens_total{{model="tiny_llm"')
        )
        for name in names
    )


def generate(server: Served, path: str, **more: Any) -> tuple[Any, str]:
    """Headers and body of an explained answer."""
    body = json.dumps({"text_input": PROMPT, "parameters": SAMPLING, **more})
    url = f"http://{server.http}/v2/models/tiny_llm/{path}"
    asked = urllib.request.Request(url, body.encode(), {"penstock-explain": "1"})
    with urllib.request.urlopen(asked, timeout=120) as reply:
        return reply.headers, reply.read().decode()


def question() -> Any:
    """The prompt as a gRPC request."""
    message = service_pb2.ModelInferRequest(model_name="tiny_llm")
    for name, text in (("text_input", PROMPT), ("sampling_parameters", json.dumps(SAMPLING))):
        message.inputs.add(name=name, datatype="BYTES", shape=[1])
        message.raw_input_contents.append(np.uint32(len(text)).tobytes() + text.encode())
    return message


def check_headers(metadata: Any, told: dict[str, Any]) -> None:
    """The headers are those whose numbers the explanation has, and have the same."""
    (one,) = told["requests"]
    given = {name: float(value) for name, value in metadata if name.startswith("x-")}
    assert given == {
        name: pytest.approx(one[fact], abs=0.001) for name, fact in HEADERS.items() if fact in one
    }
    assert given.keys() >= HEADERS.keys() - {"x-cached-tokens"}


def check(server: Served, told: dict[str, Any], before: tuple[float, float]) -> None:
    """The explanation is whole, in order, and says what the metrics counted since `before`."""
    (one,) = told["requests"]
    used = one["gen_ai.usage.input_tokens"], one["gen_ai.usage.output_tokens"]
    after = before[0] + used[0], before[1] + used[1]
    wait_until(lambda: tokens(server) == after)  # the engine's process reports twice a second
    assert used[1] == 12
    assert one["gen_ai.request.model"] == "tiny_llm"
    assert one["gen_ai.provider.name"] == "openvino_genai"
    assert one["gen_ai.response.finish_reasons"] == ["length"]
    marks = ("start", "engine_queued", "prefill_start", "first_token", "decode_end")
    times = [one[f"{mark}_us"] for mark in marks]
    assert times == sorted(times)
    assert one["decode_end_us"] <= one["start_us"] + one["total_us"]
    first = (one["first_token_us"] - one["engine_queued_us"]) / 1000
    assert one["penstock.llm.time_to_first_token_ms"] == pytest.approx(first, abs=0.001)
    seconds = (one["decode_end_us"] - one["first_token_us"]) / 1e6
    assert one["penstock.llm.queue_time_ms"] == pytest.approx(
        (one["prefill_start_us"] - one["engine_queued_us"]) / 1000, abs=0.001
    )
    assert one["penstock.llm.total_time_ms"] == pytest.approx(
        (one["decode_end_us"] - one["engine_queued_us"]) / 1000, abs=0.001
    )
    assert one["penstock.llm.wasted_tokens"] == 0
    assert one["penstock.llm.decode_tokens_per_second"] == pytest.approx(11 / seconds, rel=0.01)
    assert PROMPT not in json.dumps(told)


def test_a_whole_answer_is_explained_as_the_metrics_count(server: Served) -> None:
    before = tokens(server)
    headers, _ = generate(server, "generate")
    told = json.loads(headers["penstock-explain"])
    check(server, told, before)
    check_headers([(name.lower(), value) for name, value in headers.items()], told)


def test_a_stream_of_grpc_ends_with_the_numbers_of_its_generation(server: Served) -> None:
    before = tokens(server)
    channel, service = stub(server.grpc)
    with channel:
        call = service.ModelStreamInfer(iter([question()]), metadata=EXPLAIN, timeout=60)
        assert not any(answer.error_message for answer in call)
        metadata = call.trailing_metadata()
    (told,) = explanations(metadata)
    check(server, told, before)
    check_headers(metadata, told)


def test_a_stream_is_explained_as_the_metrics_count(server: Served) -> None:
    before = tokens(server)
    _, body = generate(server, "generate_stream", stream=True)
    told = json.loads(body.partition("event: penstock-explain\ndata: ")[2])
    check(server, told, before)
    assert told["requests"][0]["first_response_us"] >= told["requests"][0]["first_token_us"]
