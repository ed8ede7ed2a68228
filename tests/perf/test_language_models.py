"""`penstock perf` for language models: prompts, OpenAI's endpoints, Triton's tensors."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock_client.perf.errors import PerfError, Status
from penstock_client.perf.requests.language import prompt_steps
from penstock_client.perf.requests.lengths import parse_lengths
from penstock_client.perf.requests.prompts import Prompt, SharedPrefix, make_prompts
from penstock_client.perf.server import ModelInfo, TensorInfo
from perf.conftest import Perf
from perf.openai_server import OpenAiServer, openai_server


@pytest.fixture
def openai() -> Iterator[OpenAiServer]:
    with openai_server() as server:
        yield server


def _words(server: OpenAiServer) -> list[str]:
    return ["-m", "llm", "-i", "openai", "-u", server.url, "-n", "6", "-c", "2"]


def test_tokens_of_a_stream_are_counted_by_the_server(perf: Perf, openai: OpenAiServer) -> None:
    ran = perf(*_words(openai), "--streaming", "--output-tokens", "3", "--prompt", "Hello")
    assert ran.status == 0, ran.printed
    assert ran.point["responses_per_request"] == 3
    assert ran.point["tokens_per_request"] == 3
    body = openai.bodies[0]
    assert body["messages"] == [{"role": "user", "content": "Hello"}]
    assert (body["max_tokens"], body["stream"]) == (3, True)


def test_error_within_a_stream_is_a_failure(perf: Perf, openai: OpenAiServer) -> None:
    openai.broken = True
    ran = perf(*_words(openai), "--streaming")
    assert ran.status == Status.FAILURES
    assert ran.point["errors"] == {"the engine is gone": 6}


@pytest.mark.parametrize(
    ("endpoint", "field"), [("completions", "prompt"), ("embeddings", "input")]
)
def test_answers_without_a_stream(
    perf: Perf, openai: OpenAiServer, endpoint: str, field: str
) -> None:
    extra = ["--endpoint", endpoint, "--extra-body", '{"user": "me"}', "--prompt-words", "4"]
    ran = perf(*_words(openai), *extra)
    assert (ran.status, ran.point["requests"]) == (0, 6), ran.printed
    assert ran.point["tokens_per_request"] == 3
    assert len(openai.bodies[0][field].split()) == 4
    assert openai.bodies[0]["user"] == "me"


def test_model_that_is_not_served_is_named_beside_those_that_are(
    perf: Perf, openai: OpenAiServer
) -> None:
    ran = perf("-m", "other", "-i", "openai", "-u", openai.url)
    assert ran.status == Status.UNREACHABLE
    assert "has no model 'other', but llm" in ran.printed


def test_lengths_of_a_trace_are_those_of_its_prompts(
    perf: Perf, openai: OpenAiServer, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [{"timestamp": at, "input_length": at + 1, "output_length": 7} for at in (0, 4)]
    trace.write_text("\n".join(map(json.dumps, lines)))
    perf("-m", "llm", "-i", "openai", "-u", openai.url, "--trace", str(trace))
    found = sorted(len(body["messages"][0]["content"].split()) for body in openai.bodies)
    assert found == [1, 5]
    assert {body["max_tokens"] for body in openai.bodies} == {7}


def test_prompts_share_as_many_prefixes_as_are_asked_for() -> None:
    lengths = parse_lengths("uniform:2:5")
    prompts = make_prompts(50, lengths, None, SharedPrefix(10, 3), seed=1)
    assert len({tuple(prompt.text.split()[:10]) for prompt in prompts}) == 3
    assert {len(prompt.text.split()) for prompt in prompts} == {12, 13, 14, 15}


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("8", 8, 8), ("uniform:3:9", 3, 9), ("normal:100:5", 70, 130), ("lognormal:50:0.2", 15, 160)],
)
def test_lengths_lie_where_their_distribution_has_them(text: str, low: int, high: int) -> None:
    chance = random.Random(2)
    drawn = [parse_lengths(text).draw(chance) for _ in range(200)]
    assert low <= min(drawn) <= max(drawn) <= high


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "normal:1", "uniform:5:2", "other:1:2", "0", "normal:-1:2", "1e12"),
        *("nan", "inf", "normal:nan:1", "normal:5:inf", "lognormal:5:1000"),
    ],
)
def test_lengths_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write 128, normal:MEAN"):
        parse_lengths(text)


def _model(*inputs: TensorInfo) -> ModelInfo:
    return ModelInfo("llm", "", inputs, ())


_TEXT = TensorInfo("text_input", "BYTES", (1,))


def test_prompt_in_the_tensors_of_the_vllm_backend() -> None:
    model = _model(
        _TEXT, TensorInfo("stream", "BOOL", (1,)), TensorInfo("sampling_parameters", "BYTES", (1,))
    )
    (step,) = prompt_steps(model, [Prompt("Hi", 9)], streamed=True)
    assert step["text_input"].elements() == [b"Hi"]
    assert step["stream"].numpy().tolist() == [True]
    assert json.loads(step["sampling_parameters"].elements()[0])["max_tokens"] == 9


def test_prompt_in_the_tensors_of_the_tensorrt_llm_backend() -> None:
    model = _model(_TEXT, TensorInfo("max_tokens", "INT32", (1,)))
    (step,) = prompt_steps(model, [Prompt("Hi", 9)], streamed=True)
    assert step["max_tokens"].numpy().tolist() == [9]


def test_model_without_prompts_is_refused() -> None:
    with pytest.raises(PerfError, match="takes no prompts"):
        prompt_steps(_model(TensorInfo("X", "FP32", (1,))), [Prompt("Hi")], streamed=False)
