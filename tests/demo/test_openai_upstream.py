"""What the tests of Triton's own OpenAI frontend ask of a server, asked of the demo's models.

Most are asked of vLLM, too: `tests/backends/vllm/test_openai_served.py` takes them from here.

Where Triton refuses what is possible here (`n`, log probabilities, usage of whole answers), it is
expected to work; status 422 of a wrong field is 400.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from harness.serving import Served

pytestmark = pytest.mark.slow

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ASKED: Any = {
    CHAT: {"model": "tiny_llm", "messages": [{"role": "user", "content": "How do I open a file?"}]},
    COMPLETIONS: {"model": "tiny_llm", "prompt": "The file is"},
}
SYSTEM = {"role": "system", "content": "You know Python."}


@pytest.fixture
def refusals() -> set[str]:
    """The types of errors by which these models refuse a request."""
    return {"invalid_request_error"}


def ask(http: httpx.Client, path: str = CHAT, **fields: Any) -> Any:
    answer = http.post(path, json={**ASKED[path], **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def text(http: httpx.Client, path: str = CHAT, **fields: Any) -> str:
    (choice,) = ask(http, path, **fields)["choices"]
    return str(choice["message"]["content"] if path == CHAT else choice["text"])


@pytest.mark.contract("OA-02", "OA-03", "OA-11", "OA-12")
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_defaults(path: str, http: httpx.Client) -> None:
    answer = ask(http, path, max_tokens=8)
    kind = {CHAT: "chat.completion", COMPLETIONS: "text_completion"}[path]
    start = {CHAT: "chatcmpl-", COMPLETIONS: "cmpl-"}[path]
    assert (answer["object"], answer["model"]) == (kind, "tiny_llm")
    assert answer["id"].startswith(start)
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert min(usage["prompt_tokens"], usage["completion_tokens"]) > 0


@pytest.mark.contract("OA-15")
@pytest.mark.parametrize(
    "messages",
    [
        [SYSTEM, *ASKED[CHAT]["messages"]],
        [SYSTEM],
        [{"role": "user", "content": "How?"}],
        [{"role": "user", "content": [{"type": "text", "text": "How?"}]}],
    ],
)
def test_messages_of_any_form(messages: Any, http: httpx.Client) -> None:
    answer = ask(http, messages=messages, max_tokens=4)
    assert answer["choices"][0]["message"]["role"] == "assistant"


@pytest.mark.contract("OA-02", "OA-03")
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 0.7},
        {"max_tokens": 10},
        {"top_p": 0.9},
        {"frequency_penalty": 0.5},
        {"presence_penalty": 0.2},
        {"n": 1},
        {"n": 2, "temperature": 1},
        {"stop": "."},
        {"stop": []},
        {"stop": [".", ","]},
        {"min_tokens": 4},
        {"ignore_eos": True},
        {"seed": 1},
    ],
)
def test_sampling_parameters(path: str, fields: Any, http: httpx.Client) -> None:
    answer = ask(http, path, **{"max_tokens": 8, **fields})
    assert len(answer["choices"]) == fields.get("n", 1)


@pytest.mark.contract("OA-23", "OA-02", "OA-03")
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 2.1},
        {"temperature": -0.1},
        {"max_tokens": -1},
        {"top_p": 1.1},
        {"frequency_penalty": 3},
        {"frequency_penalty": -3},
        {"presence_penalty": 2.1},
        {"presence_penalty": -2.1},
        {"min_tokens": -1},
        {"ignore_eos": 123},
    ],
)
def test_invalid_sampling_parameters(path: str, fields: Any, http: httpx.Client) -> None:
    answer = http.post(path, json={**ASKED[path], **fields})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert next(iter(fields)) in (error["param"] or error["message"])  # vLLM often has the latter


@pytest.mark.contract("OA-02")
@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        ({"max_tokens": 1}, 1),
        ({"max_completion_tokens": 1}, 1),
        ({"max_completion_tokens": 5, "max_tokens": 50}, 5),
        ({"max_completion_tokens": None, "max_tokens": 3}, 3),
    ],
)
def test_length(fields: Any, tokens: int, http: httpx.Client) -> None:
    answer = ask(http, ignore_eos=True, **fields)
    assert answer["usage"]["completion_tokens"] == tokens
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_temperature_and_seed(path: str, http: httpx.Client) -> None:
    greedy = [text(http, path, temperature=0, max_tokens=24) for _ in range(2)]
    assert greedy[0] == greedy[1]
    warm: Any = {"temperature": 2, "max_tokens": 24, "ignore_eos": True}
    first, again, other = [text(http, path, seed=seed, **warm) for seed in (1, 1, 2)]
    assert first == again != other


@pytest.mark.contract("OA-13")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"model": "tiny_llm", "messages": []}),
        (CHAT, {"model": "tiny_llm", "messages": [{}]}),
        (COMPLETIONS, {}),
        (COMPLETIONS, {"prompt": "a"}),
        (COMPLETIONS, {"model": "tiny_llm"}),
        (COMPLETIONS, {"model": "tiny_llm", "prompt": ""}),
        (COMPLETIONS, {"model": "tiny_llm", "prompt": "a", "n": 2, "best_of": 1}),
        (CHAT, {**ASKED[CHAT], "top_logprobs": 2}),
        (CHAT, {**ASKED[CHAT], "stream_options": {"include_usage": True}}),
        (COMPLETIONS, {**ASKED[COMPLETIONS], "stream_options": {"include_usage": True}}),
    ],
)
def test_what_is_missing_is_told(
    path: str, body: Any, http: httpx.Client, refusals: set[str]
) -> None:
    answer = http.post(path, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] in refusals


@pytest.mark.contract("OA-03")
@pytest.mark.parametrize("echo", [False, True])
def test_echo(echo: bool, http: httpx.Client) -> None:
    found = text(http, COMPLETIONS, echo=echo, max_tokens=4, temperature=0)
    assert found.startswith("The file is") is echo


def given(members: dict[str, Any]) -> dict[str, Any]:
    """The members that are not null."""
    return {
        name: given(value) if isinstance(value, dict) else value
        for name, value in members.items()
        if value is not None
    }


@pytest.mark.contract("OA-10", "OA-11")
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stop", [None, "is", ["is", ".", ","]])
def test_streams_say_what_whole_answers_do(path: str, stop: Any, http: httpx.Client) -> None:
    asked: Any = {"max_tokens": 32, "temperature": 0, "seed": 0, "stop": stop}
    whole = ask(http, path, **asked)
    options = {"stream": True, "stream_options": {"include_usage": True}}
    told = http.post(path, json={**ASKED[path], **asked, **options}).text
    *events, done = told.strip().split("\n\n")
    assert done == "data: [DONE]"
    chunks = [json.loads(one.removeprefix("data: ")) for one in events]
    assert given(chunks[-1]["usage"]) == given(whole["usage"])
    assert chunks[-1]["choices"] == []
    assert [chunk.get("usage") for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    kind = {CHAT: "chat.completion.chunk", COMPLETIONS: "text_completion"}[path]
    assert {(chunk["object"], chunk["id"]) for chunk in chunks} == {(kind, chunks[0]["id"])}
    choices = [chunk["choices"][0] for chunk in chunks[:-1]]
    reasons = [one["finish_reason"] for one in choices if one["finish_reason"]]
    assert reasons == [whole["choices"][0]["finish_reason"]]
    parts = [one["delta"].get("content", "") if path == CHAT else one["text"] for one in choices]
    (choice,) = whole["choices"]
    assert "".join(parts) == (choice["message"]["content"] if path == CHAT else choice["text"])


@pytest.mark.contract("OA-04")
@pytest.mark.parametrize("texts", ["A test sentence.", ["A test sentence.", "Another one."]])
def test_embeddings(texts: Any, http: httpx.Client) -> None:
    answer = http.post("/v1/embeddings", json={"model": "minilm", "input": texts}).json()
    assert [one["index"] for one in answer["data"]] == list(range(len(answer["data"])))
    assert {len(one["embedding"]) for one in answer["data"]} == {384}
    assert (answer["object"], answer["model"]) == ("list", "minilm")
    assert answer["usage"]["prompt_tokens"] > 0


@pytest.mark.contract("OA-05", "OA-06", "OA-09")
def test_observability(served: Served, http: httpx.Client) -> None:
    assert http.get("/does-not-exist").status_code == 404
    assert http.get("/health/ready").status_code == 200
    assert "nv_cpu_utilization" in httpx.get(served.metrics, verify=False).text
    models = http.get("/v1/models").json()["data"]
    assert [one["id"] for one in models] == ["minilm", "tiny_llm"]
    assert http.get("/v1/models/tiny_llm").json() == models[1]
    for one in models:
        assert (one["object"], one["owned_by"]) == ("model", "Triton Inference Server")
        assert one["created"] > 0


@pytest.mark.contract("OA-13")
@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
def test_unknown_models(path: str, http: httpx.Client) -> None:
    answer = http.post(path, json={"model": "nobody", "input": "a"})
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == "Unknown model: nobody"


def test_results_of_tools_are_read(http: httpx.Client) -> None:
    call = {"name": "weather", "arguments": '{"city": "Dallas"}'}
    messages = [
        SYSTEM,
        {"role": "user", "content": "How warm is it in Dallas?"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "123456789", "type": "function", "function": call}],
        },
        {"role": "tool", "tool_call_id": "123456789", "content": "98"},
    ]
    tools = [{"type": "function", "function": {"name": "weather"}}]
    answer = ask(http, messages=messages, tools=tools, tool_choice="none", max_tokens=4)
    assert not answer["choices"][0]["message"].get("tool_calls")


@pytest.mark.contract("OA-17")
def test_forced_calls(http: httpx.Client) -> None:
    kind = {
        "type": "object",
        "properties": {"odd": {"type": "boolean"}},
        "required": ["odd"],
        "additionalProperties": False,
    }
    tools = [{"type": "function", "function": {"name": "odd", "parameters": kind}}]
    named = {"type": "function", "function": {"name": "odd"}}
    answer = ask(http, tools=tools, tool_choice=named, max_tokens=60, temperature=0)
    (called,) = answer["choices"][0]["message"]["tool_calls"]
    assert (called["type"], called["function"]["name"]) == ("function", "odd")
    assert len(called["id"]) >= 9
