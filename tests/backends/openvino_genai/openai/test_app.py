"""OpenAI's API over the real engine and the demo's model, with the official client."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio
from openai.types.chat import ChatCompletionChunk

from backends.conftest import F32
from backends.exchanging import application, begin, whole
from backends.generation import until, usage
from backends.openai_kit.scripted import events_of
from backends.openvino_genai.asking import client_for, opened
from penstock.core.errors import ModelLoadError, UnsupportedError
from penstock.testing import RunningInstance

pytest.importorskip("openvino_genai", reason="OpenVINO GenAI is not installed")

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHAT: Any = {
    "model": "m",
    "messages": [{"role": "user", "content": "How do I open a file?"}],
    "temperature": 0,
    "max_completion_tokens": 24,
}
SAYS = "Use the function open in a with statement. The file is closed automatically when the"
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"odd": {"type": "boolean"}},
                "required": ["odd"],
                "additionalProperties": False,
            },
        },
    }
    for name in ("one", "two")
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def instance(gguf_version: Path) -> AsyncIterator[RunningInstance]:
    """One engine for all: to open it takes longer than to ask it."""
    async with opened(gguf_version) as instance:
        yield instance


@pytest_asyncio.fixture(loop_scope="module")
async def client(instance: RunningInstance) -> openai.AsyncOpenAI:
    return await client_for(instance)


@asynccontextmanager
async def opened_with(version: Path, **settings: Any) -> AsyncIterator[openai.AsyncOpenAI]:
    given = {"properties": F32, "num_kv_blocks": 64, "openai": settings}
    (version / "model.json").write_text(json.dumps(given))
    async with opened(version) as instance:
        yield await client_for(instance)


async def test_a_chat_is_the_same_whole_and_streamed(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(**CHAT)
    stream = await client.chat.completions.create(**CHAT, stream=True)
    chunks: list[ChatCompletionChunk] = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert whole.choices[0].message.content == text
    assert text.startswith(SAYS)
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (9, 24)


async def test_stop_seed_and_several_answers(client: openai.AsyncOpenAI) -> None:
    asked = {**CHAT, "temperature": 1, "seed": 5, "n": 3}
    first, again = [await client.chat.completions.create(**asked) for _ in range(2)]
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in again.choices]
    stopped = await client.chat.completions.create(**CHAT, stop=[" in a"])
    assert stopped.choices[0].message.content == "Use the function open"
    assert stopped.choices[0].finish_reason == "stop"


async def test_log_probabilities_of_the_chosen_tokens(client: openai.AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(**CHAT, logprobs=True, top_logprobs=1)
    stream = await client.chat.completions.create(
        **CHAT, logprobs=True, top_logprobs=1, stream=True
    )
    streamed = [
        one.token
        async for chunk in stream
        if chunk.choices[0].logprobs is not None
        for one in chunk.choices[0].logprobs.content or ()
    ]
    assert whole.choices[0].logprobs is not None
    assert [one.token for one in whole.choices[0].logprobs.content or ()] == streamed
    assert "".join(streamed).startswith(SAYS)
    with pytest.raises(openai.BadRequestError, match="'top_logprobs' of 5 is not supported"):
        await client.chat.completions.create(**CHAT, logprobs=True, top_logprobs=5)


async def test_a_form_is_kept_to(client: openai.AsyncOpenAI) -> None:
    """This model would put white space without end between the parts, and digits into numbers."""
    properties = {"a": {"enum": ["ab", 7]}, "b": {"type": "number"}, "c": {"type": "integer"}}
    schema: Any = {"type": "object", "properties": properties, "required": ["a", "b", "c"]}
    form: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    asked = {**CHAT, "max_completion_tokens": 120}
    answer = await client.chat.completions.create(**asked, response_format=form)
    assert answer.choices[0].finish_reason == "stop"
    assert list(json.loads(answer.choices[0].message.content or "")) == ["a", "b", "c"]
    choice = {"structured_outputs": {"choice": ["red", "blue"]}}
    answer = await client.chat.completions.create(**CHAT, extra_body=choice)
    assert answer.choices[0].message.content in ("red", "blue")
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(a+)+$"}}}
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    with pytest.raises(openai.BadRequestError, match="'response_format' has 'pattern'"):
        await client.chat.completions.create(**CHAT, response_format=form)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "two"}}])
async def test_forced_calls_are_the_same_whole_and_streamed(
    client: openai.AsyncOpenAI, choice: Any
) -> None:
    asked = {**CHAT, "max_completion_tokens": 60, "tools": TOOLS, "tool_choice": choice}
    whole = await client.chat.completions.create(**asked)
    stream = await client.chat.completions.create(**asked, stream=True)
    streamed: list[Any] = []
    async for chunk in stream:
        for call in chunk.choices[0].delta.tool_calls or ():
            if call.id is not None:
                streamed.append([call.function.name if call.function else None, ""])
            streamed[call.index][1] += (call.function.arguments if call.function else "") or ""
    calls = whole.choices[0].message.tool_calls or []
    assert [[c.function.name, c.function.arguments] for c in calls if c.type == "function"] == (
        streamed
    )
    if choice != "required":
        assert streamed[0][0] == "two"


async def test_responses_and_completions(client: openai.AsyncOpenAI) -> None:
    response = await client.responses.create(
        model="m", input="How do I open a file?", temperature=0, max_output_tokens=24
    )
    assert response.output_text.startswith(SAYS)
    completion = await client.completions.create(
        model="m", prompt="The with", temperature=0, max_tokens=6, logprobs=1
    )
    by_tokens = await client.completions.create(
        model="m", prompt=[478, 361], temperature=0, max_tokens=6
    )
    assert completion.choices[0].text == by_tokens.choices[0].text
    assert completion.choices[0].logprobs is not None
    assert "".join(completion.choices[0].logprobs.tokens or ()) == completion.choices[0].text


async def test_a_prompt_that_is_far_too_long_is_refused(client: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"or more tokens, but .* is 1024") as refused:
        await client.completions.create(model="m", prompt="word " * 2000)
    assert refused.value.code == "context_length_exceeded"


async def test_a_chat_goes_on_to_the_end_of_the_context(own_gguf_version: Path) -> None:
    given = {"properties": F32, "num_kv_blocks": 64, "max_model_len": 64}
    (own_gguf_version / "model.json").write_text(json.dumps(given))
    async with opened(own_gguf_version) as instance:
        client = await client_for(instance)
        asked = {name: value for name, value in CHAT.items() if name != "max_completion_tokens"}
        answer = await client.chat.completions.create(**asked, extra_body={"ignore_eos": True})
        assert answer.usage is not None
        assert answer.usage.total_tokens == 64
        assert answer.choices[0].finish_reason == "length"


@pytest.mark.contract("OA-15")
async def test_settings_of_the_model_hold(own_gguf_version: Path) -> None:
    (own_gguf_version / "mine.jinja").write_text("The with statement{{ eos_token[:0] }}")
    async with opened_with(
        own_gguf_version, chat_template="mine.jinja", default_max_tokens=3
    ) as client:
        asked = {name: value for name, value in CHAT.items() if name != "max_completion_tokens"}
        answer = await client.chat.completions.create(**asked)
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tool_parser": "hermes"}, "unknown key 'tool_parser' in 'openai'.* did you mean"),
        ({"tool_call_parser": "mine"}, "'tool_call_parser' in 'openai' must be one of hermes"),
        ({"chat_template": "none.jinja"}, "no chat template at"),
    ],
)
async def test_wrong_settings_are_told_at_load(
    own_gguf_version: Path, settings: Any, message: str
) -> None:
    with pytest.raises(ModelLoadError, match=message):
        async with opened_with(own_gguf_version, **settings):
            pass


async def test_clients_that_leave_free_the_engine(instance: RunningInstance) -> None:
    client = await client_for(instance)
    asked = {**CHAT, "max_completion_tokens": 900}

    async def begin() -> None:
        await client.chat.completions.create(**asked, extra_body={"ignore_eos": True})

    tasks = [asyncio.ensure_future(begin()) for _ in range(4)]
    await until(lambda: usage(instance)[0] == 4)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await until(lambda: usage(instance) == (0, 0, 0))


async def test_tokens_of_exchanges_are_told_to_the_server(instance: RunningInstance) -> None:
    told: list[tuple[int, int, int]] = []
    body = {"model": "m", "prompt": ["The with", "A"], "temperature": 0, "max_tokens": 4}
    async with application(instance.backend) as app:
        stream = begin(app, "/v1/completions", body, report_usage=lambda *n: told.append(n))
        assert (await whole(stream))[0] == 200
    assert told[-1] == (3, 0, 8)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_readers_that_leave_a_stream_free_the_engine(
    instance: RunningInstance, path: str
) -> None:
    asked = {**CHAT, "max_completion_tokens": 900, "ignore_eos": True, "stream": True}
    body = asked if "chat" in path else {"model": "m", "input": "Hello", "stream": True}
    async with application(instance.backend) as app:
        streams = [begin(app, path, body) for _ in range(3)]
        for stream in streams:
            await anext(stream)
        for stream in streams:
            stream.close()
        await until(lambda: usage(instance) == (0, 0, 0))


async def test_a_slow_reader_gets_all_of_it(instance: RunningInstance) -> None:
    body = {**CHAT, "stream": True}
    async with application(instance.backend) as app:
        stream = begin(app, "/v1/chat/completions", body)
        await until(lambda: usage(instance)[0] == 1)
        await until(lambda: usage(instance) == (0, 0, 0))
        _, rest = await whole(stream)
    deltas = [event["choices"][0]["delta"] for event in events_of(rest)[:-1]]
    text = "".join(delta.get("content", "") for delta in deltas)
    assert text.startswith(SAYS)


async def test_what_the_server_found_in_a_request_holds(instance: RunningInstance) -> None:
    body = {"model": "m", "prompt": "A", "max_tokens": 1, "nonsense": True}
    async with application(instance.backend) as app:
        stream = begin(app, "/v1/completions", body, parameters={"unknown_fields": "ignore"})
        assert (await whole(stream))[0] == 200
        parameters = {"model": "m_lora", "adapter": "lora"}
        status, text = await whole(begin(app, "/v1/completions", body, parameters=parameters))
        assert (status, json.loads(text)["error"]["param"]) == (404, "model")


async def test_without_its_packages_the_model_says_what_to_install(
    instance: RunningInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "penstock_backends.openai_kit.application", None)
    async with application(instance.backend) as app:
        with pytest.raises(UnsupportedError, match=r"pip install 'penstock\[openai\]'"):
            await whole(begin(app, "/v1/completions", {}))
