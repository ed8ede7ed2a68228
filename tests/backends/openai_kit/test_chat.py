"""Chats, whole and streamed, with the official client over a scripted model."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from backends.openai_kit.scripted import HELLO, Script, ScriptedModel, events_of, post
from penstock.core.errors import (
    ExhaustedError,
    InferenceError,
    InternalError,
    InvalidRequestError,
    UnavailableError,
)

CHAT = "/v1/chat/completions"


@pytest.mark.contract("OA-02", "OA-12")
async def test_a_whole_answer_has_its_usage_without_asking() -> None:
    model = ScriptedModel()
    answer = await post(model.app(), CHAT, {"model": "m", "messages": HELLO})
    chat = ChatCompletion.model_validate(answer.json(), strict=True)
    assert chat.choices[0].message.content == "Hello you"
    assert chat.choices[0].finish_reason == "stop"
    assert answer.json()["usage"] == {
        "prompt_tokens": 22,
        "completion_tokens": 1,
        "total_tokens": 23,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    assert model.prompt == "<user>hello<assistant>"


@pytest.mark.contract("OA-10")
async def test_every_chunk_is_one_of_the_client_and_done_comes_last() -> None:
    body = {"model": "m", "messages": HELLO, "stream": True, "n": 2, "logprobs": True}
    answer = await post(ScriptedModel(Script(['"é\n\x01', "🙂"])).app(), CHAT, body)
    *chunks, last = events_of(answer.text)
    parsed = [ChatCompletionChunk.model_validate(chunk, strict=True) for chunk in chunks]
    assert last == "[DONE]"
    assert parsed[0].choices[0].delta.role == "assistant"
    for index in (0, 1):
        mine = [chunk.choices[0] for chunk in parsed if chunk.choices[0].index == index]
        assert "".join(choice.delta.content or "" for choice in mine) == '"é\n\x01🙂'
        assert [choice.finish_reason for choice in mine][-2:] == [None, "stop"]
        assert [len(c.logprobs.content or ()) for c in mine if c.logprobs] == [1, 1]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (None, []),
        ({"include_usage": True}, [None, None, None, None, 2]),
        ({"include_usage": True, "continuous_usage_stats": True}, [1, 1, 2, 2, 2]),
    ],
)
async def test_usage_of_streams_is_told_as_asked(options: Any, told: list[Any]) -> None:
    body = {"model": "m", "messages": HELLO, "stream": True}
    if options:
        body["stream_options"] = options
    answer = await post(ScriptedModel().app(), CHAT, body)
    chunks = events_of(answer.text)[:-1]
    usages = [chunk["usage"] for chunk in chunks if "usage" in chunk]
    assert [usage and usage["completion_tokens"] for usage in usages] == told
    assert all(chunk["choices"] for chunk in chunks[: 4 if told else 9])


@pytest.mark.contract("OA-02")
async def test_parameters_reach_the_engine_in_its_own_names() -> None:
    model = ScriptedModel()
    await model.client().chat.completions.create(
        model="m",
        messages=HELLO,
        max_completion_tokens=5,
        temperature=0.5,
        top_p=0.9,
        seed=3,
        stop=["x"],
        n=2,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        logprobs=True,
        extra_body={"top_k": 7, "structured_outputs": {"regex": "a"}, "return_token_ids": True},
    )
    assert model.asked[0].parameters == {
        "max_tokens": 5,
        "temperature": 0.5,
        "top_p": 0.9,
        "seed": 3,
        "stop": ["x"],
        "n": 2,
        "presence_penalty": 0.1,
        "frequency_penalty": 0.2,
        "logprobs": 0,
        "top_k": 7,
        "structured_outputs": {"regex": "a"},
    }
    assert model.asked[0].whole
    assert model.asked[0].token_ids


@pytest.mark.parametrize(("default", "expected"), [(None, 178), (16, 16)])
async def test_without_a_length_a_chat_goes_on_to_the_end_of_the_context(
    default: int | None, expected: int
) -> None:
    model = ScriptedModel()
    client = model.client(default_max_tokens=default)
    await client.chat.completions.create(model="m", messages=HELLO)
    assert model.asked[0].parameters["max_tokens"] == expected


async def test_what_a_client_has_got_may_be_sent_back_with_its_nulls() -> None:
    """As `model_dump` of an answer has them, of which OpenAI's types do not allow all."""
    model = ScriptedModel()
    first = await model.client().chat.completions.create(model="m", messages=HELLO)
    messages = [*HELLO, first.choices[0].message.model_dump(), *HELLO]
    function = {"name": "f", "description": None, "parameters": {"default": None}, "strict": None}
    body = {"messages": messages, "tools": [{"type": "function", "function": function}]}
    options = {"tool_choice": "none", "stream": True, "stream_options": {"include_usage": None}}
    answer = await post(model.app(), CHAT, {"model": "m", **body, **options})
    assert answer.status_code == 200, answer.text
    assert model.prompt == "<user>hello<assistant>Hello you<user>hello<assistant>"


async def test_a_response_may_be_sent_back_with_its_nulls() -> None:
    model = ScriptedModel()
    first = await model.client().responses.create(model="m", input="hello")
    given = [*HELLO, *(item.model_dump() for item in first.output), *HELLO]
    answer = await post(model.app(), "/v1/responses", {"model": "m", "input": given})
    assert answer.status_code == 200, answer.text
    assert model.prompt == "<user>hello<assistant>Hello you<user>hello<assistant>"


@pytest.mark.contract("OA-18")
async def test_a_schema_is_asked_of_the_engine_without_references() -> None:
    model = ScriptedModel(Script(["{}"]))
    schema = {
        "$defs": {"Name": {"type": "string"}},
        "type": "object",
        "properties": {"first": {"$ref": "#/$defs/Name"}},
    }
    form: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    await model.client().chat.completions.create(model="m", messages=HELLO, response_format=form)
    asked = model.asked[0].parameters["structured_outputs"]["json"]
    assert json.loads(asked) == {"type": "object", "properties": {"first": {"type": "string"}}}


async def test_the_request_id_is_the_clients() -> None:
    model = ScriptedModel()
    headers = {"x-request-id": "abc-1"}
    answer = await model.client().chat.completions.create(
        model="m", messages=HELLO, extra_headers=headers
    )
    assert answer.id == "chatcmpl-abc-1"
    assert model.asked[0].request_id == "abc-1"


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (InvalidRequestError("no"), 400, "invalid_request_error"),
        (ExhaustedError("full"), 429, "rate_limit_error"),
        (UnavailableError("gone"), 503, "service_unavailable_error"),
        (InternalError("broken"), 500, "server_error"),
    ],
)
async def test_errors_of_the_engine_have_openais_form(
    error: InferenceError, status: int, kind: str
) -> None:
    answer = await post(
        ScriptedModel(Script(refusal=error)).app(), CHAT, {"model": "m", "messages": HELLO}
    )
    assert answer.status_code == status
    assert answer.json()["error"] == {
        "message": str(error),
        "type": kind,
        "param": None,
        "code": None,
    }
    assert ("retry-after" in answer.headers) == (status in (429, 503))


async def test_a_refused_parameter_is_named_as_the_client_named_it() -> None:
    refusal = InvalidRequestError("sampling parameter 'logprobs' of 3 is not supported")
    body = {"model": "m", "messages": HELLO, "logprobs": True, "top_logprobs": 3}
    answer = await post(ScriptedModel(Script(refusal=refusal)).app(), CHAT, body)
    assert answer.json()["error"]["message"] == "'top_logprobs' of 3 is not supported"
    assert answer.json()["error"]["param"] == "top_logprobs"


async def test_an_error_after_the_first_chunk_is_one_event_and_the_end() -> None:
    script = Script(error=UnavailableError("the engine failed"))
    body = {"model": "m", "messages": HELLO, "stream": True}
    answer = await post(ScriptedModel(script).app(), CHAT, body)
    assert answer.status_code == 200
    *chunks, last = events_of(answer.text)
    assert [c["choices"][0]["delta"].get("content") for c in chunks] == ["", "Hello", " you"]
    assert last["error"]["message"] == "the engine failed"
    assert last["error"]["type"] == "service_unavailable_error"


async def test_no_chunk_holds_what_a_reader_takes_for_the_end_of_a_line() -> None:
    says = "a\x85b\u2028c\u2029d\r\n\x0be"
    body = {"model": "m", "messages": HELLO, "stream": True}
    answer = await post(ScriptedModel(Script([says])).app(), CHAT, body)
    lines = [line for line in answer.text.splitlines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert events_of(answer.text)[1]["choices"][0]["delta"]["content"] == says


async def test_reasoning_is_parted_from_content() -> None:
    model = ScriptedModel(Script(["hm", "m</th", "ink>\n\nyes"]))
    client = model.client(reasoning_parser="deepseek_r1")
    answer = await client.chat.completions.create(model="m", messages=HELLO)
    message = answer.choices[0].message.model_dump()
    assert (message["reasoning"], message["content"]) == ("hmm", "yes")
    stream = await client.chat.completions.create(model="m", messages=HELLO, stream=True)
    deltas = [chunk.choices[0].delta.model_dump() async for chunk in stream]
    assert "".join(delta.get("reasoning") or "" for delta in deltas) == "hmm"
    assert "".join(delta.get("content") or "" for delta in deltas) == "yes"
