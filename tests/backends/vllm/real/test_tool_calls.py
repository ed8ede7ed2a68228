"""Tools in vLLM's application: calls in every form, however their text is cut into steps."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from backends.exchanging import begin, whole
from backends.vllm.real.scripted_model import ScriptedModel, scripted
from penstock.core.application import BackendApplication
from penstock.core.request import ExchangePart
from penstock.testing import RunningInstance

pytestmark = pytest.mark.asyncio(loop_scope="session")

PATH = "/v1/chat/completions"
KINDS: Any = {
    "weather": {
        "city": {"type": "string"},
        "days": {"type": "array", "items": {"type": "integer"}},
    },
    "parity": {"odd": {"type": "boolean"}},
}
TOOLS: Any = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": properties}},
    }
    for name, properties in KINDS.items()
]
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Is it warm?"}], "tools": TOOLS}

CALLS: Any = {"weather": {"city": "Köln ☀️", "days": [1, 2]}, "parity": {"odd": True}}
WEATHER, PARITY = (
    "\n".join(
        (
            "<tool_call>",
            json.dumps({"name": name, "arguments": given}, ensure_ascii=False),
            "</tool_call>",
        )
    )
    for name, given in CALLS.items()
)
BOTH = f"{WEATHER}\n{PARITY}"

Called = tuple[str, list[tuple[str, Any]]]
"""The content of an answer, and its calls: each with its name and arguments."""

SAID: dict[str, tuple[str, Called]] = {
    "two calls": (BOTH, ("", [*CALLS.items()])),
    "text in front": (f"I <look>.\n{PARITY}", ("I <look>.\n", [("parity", CALLS["parity"])])),
    "no argument": (
        '<tool_call>{"name": "parity", "arguments": {}}</tool_call>',
        ("", [("parity", {})]),
    ),
    "no end": (
        '<tool_call>{"name": "parity", "arguments": {"odd": false}}',
        ("", [("parity", {"odd": False})]),
    ),
    "no call": ("It is <tool> warm {}.", ("It is <tool> warm {}.", [])),
}
"""Texts of a model with what an answer makes of them."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def app(
    instance: RunningInstance,
) -> AsyncIterator[tuple[BackendApplication, ScriptedModel]]:
    async with scripted(instance, tool_call_parser="hermes", enable_auto_tool_choice=True) as made:
        yield made


async def asked(
    app: tuple[BackendApplication, ScriptedModel], pieces: Sequence[str], **fields: Any
) -> tuple[str, Called]:
    """The reason for the end of a whole answer, and what is in it."""
    application, model = app
    model.pieces = pieces
    status, text = await whole(begin(application, PATH, {**CHAT, **fields}))
    assert status == 200, text
    (choice,) = json.loads(text)["choices"]
    message = choice["message"]
    calls = [_call(one["function"]) for one in message.get("tool_calls") or ()]
    return choice["finish_reason"], (message["content"] or "", calls)


async def streamed(
    app: tuple[BackendApplication, ScriptedModel], pieces: Sequence[str], **fields: Any
) -> tuple[str, Called]:
    """The same of a stream, put together."""
    application, model = app
    model.pieces = pieces
    answer = begin(application, PATH, {**CHAT, "stream": True, **fields})
    text = b"".join([part.body async for part in answer if isinstance(part, ExchangePart)])
    *events, done = text.decode().strip().split("\n\n")
    assert done == "data: [DONE]"
    choices = [json.loads(one.removeprefix("data: "))["choices"][0] for one in events]
    content = ""
    calls: dict[int, dict[str, str]] = {}
    for delta in (one["delta"] for one in choices):
        content += delta.get("content") or ""
        for part in delta.get("tool_calls") or ():
            call = calls.setdefault(part["index"], {"name": "", "arguments": ""})
            for name, piece in part["function"].items():
                call[name] += piece or ""
    (reason,) = [one["finish_reason"] for one in choices if one.get("finish_reason")]
    assert sorted(calls) == list(range(len(calls)))
    return reason, (content, [_call(calls[index]) for index in sorted(calls)])


def _call(function: Any) -> tuple[str, Any]:
    return function["name"], json.loads(function["arguments"])


def cuts(text: str, tokenizer: Any) -> list[list[str]]:
    """The text in one piece, in characters, in tokens, and in pieces of many sizes."""
    ends = [end for _, end in tokenizer(text, return_offsets_mapping=True)["offset_mapping"]]
    found = [[text], list(text), _cut(text, sorted({*ends, len(text)}))]
    for seed in range(20):
        chance = random.Random(seed)
        places = chance.sample(range(1, len(text)), chance.randrange(1, min(30, len(text) - 1)))
        found.append(_cut(text, [*sorted(places), len(text)]))
    return found


def _cut(text: str, ends: Sequence[int]) -> list[str]:
    pieces = [text[begin:end] for begin, end in zip((0, *ends), ends, strict=False)]
    return [piece for piece in pieces if piece]


@pytest.mark.parametrize("said", SAID)
async def test_streamed_calls_equal_the_whole_answer_however_they_are_cut(
    app: tuple[BackendApplication, ScriptedModel], said: str
) -> None:
    text, expected = SAID[said]
    answer = await asked(app, [text])
    assert answer == ("tool_calls" if expected[1] else "stop", expected)
    for pieces in cuts(text, app[1].get_tokenizer()):
        assert await streamed(app, pieces) == answer, pieces


NAMED = {"type": "function", "function": {"name": "parity"}}


@pytest.mark.parametrize(
    ("choice", "text", "expected"),
    [
        ({"tool_choice": "required"}, BOTH, ("tool_calls", ("", [*CALLS.items()]))),
        ({"tool_choice": NAMED}, PARITY, ("stop", ("", [("parity", CALLS["parity"])]))),
        ({"tool_choice": "none"}, BOTH, ("stop", (BOTH, []))),
        (
            {"parallel_tool_calls": False},
            BOTH,
            ("tool_calls", ("", [("weather", CALLS["weather"])])),
        ),
    ],
    ids=["required", "named", "none", "one at a time"],
)
async def test_choice_of_tools_is_kept_however_the_text_is_cut(
    app: tuple[BackendApplication, ScriptedModel], choice: Any, text: str, expected: Any
) -> None:
    assert await asked(app, [text], **choice) == expected
    forced = app[1].asked.structured_outputs
    assert (forced is None) is (choice.get("tool_choice") == "none")
    assert forced is None or '\\"name\\": \\"parity\\"' in forced.structural_tag
    for pieces in cuts(text, app[1].get_tokenizer()):
        assert await streamed(app, pieces, **choice) == expected, pieces


UNPARSABLE = (
    "Look: <tool_call>{broken</tool_call> and so on",
    "It ends with <tool",
    '<tool_call>{"arguments": {}}</tool_call>',
    "<tool_call>",
)


@pytest.mark.parametrize("text", UNPARSABLE)
async def test_what_cannot_be_parsed_is_content_however_it_is_cut(
    app: tuple[BackendApplication, ScriptedModel], text: str
) -> None:
    """Text is never lost: vLLM's parser holds it back, and would not send it at the end."""
    assert await asked(app, [text]) == ("stop", (text, []))
    for pieces in cuts(text, app[1].get_tokenizer()):
        assert await streamed(app, pieces) == ("stop", (text, [])), pieces


@pytest.mark.parametrize("text", UNPARSABLE)
async def test_what_cannot_be_parsed_is_text_of_a_response_however_it_is_cut(
    app: tuple[BackendApplication, ScriptedModel], text: str
) -> None:
    """The deltas, the text that is done, and the last event have all of it."""
    application, model = app
    tools = [{"type": "function", "strict": None, **tool["function"]} for tool in TOOLS]
    body = {"model": "m", "input": "Is it warm?", "tools": tools, "stream": True}
    for pieces in cuts(text, model.get_tokenizer()):
        model.pieces = pieces
        answer = begin(application, "/v1/responses", body)
        told = b"".join([part.body async for part in answer if isinstance(part, ExchangePart)])
        blocks = told.decode().strip().split("\n\n")
        events = [json.loads(one.partition("data: ")[2]) for one in blocks]
        assert _texts(events) == (text, [text], [text]), pieces


def _texts(events: Sequence[Any]) -> tuple[str, list[str], list[str]]:
    """The text of a response by deltas, of its parts as they end, and of the last event."""
    deltas = (one["delta"] for one in events if one["type"] == "response.output_text.delta")
    done = [one["text"] for one in events if one["type"] == "response.output_text.done"]
    messages = [one for one in events[-1]["response"]["output"] if one["type"] == "message"]
    whole = [part["text"] for message in messages for part in message["content"]]
    return "".join(deltas), done, whole
