"""Requests of frameworks beside the official client, and the shapes of answers they read."""

from __future__ import annotations

from typing import Any

import pytest

from backends.openai_kit.scripted import HELLO, Script, ScriptedModel, events_of, post

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
PARAMETERS: Any = {"type": "object", "properties": {"a": {"type": "integer"}}}
FUNCTION: Any = {"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}
SPOKEN = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
FORM: Any = {"type": "json_schema", "json_schema": {"name": "n", "schema": PARAMETERS}}


@pytest.mark.parametrize("kind", [{}, {"type": None}, {"type": "message"}])
@pytest.mark.parametrize("content", ["yes", [{"type": "output_text", "text": "yes"}]])
async def test_what_the_model_said_is_a_message_in_its_short_form(kind: Any, content: Any) -> None:
    """As pydantic-ai, LlamaIndex and the official clients of other languages send it."""
    model = ScriptedModel()
    said = {"role": "assistant", "content": content, **kind}
    body = {"model": "m", "input": [*HELLO, said, *HELLO]}
    answer = await post(model.app(), RESPONSES, body)
    assert answer.status_code == 200, answer.text
    assert model.prompt == "<user>hello<assistant>yes<user>hello<assistant>"


@pytest.mark.parametrize(
    ("settings", "choice", "says"),
    [
        (
            {},
            "required",
            ['[{"name": "f", "parameters": {"a"', ': 1}}, {"name": "f", "parameters": {"a": 1}}]'],
        ),
        (
            {"tool_call_parser": "llama3_json"},
            "auto",
            ['{"name": "f", "parameters": {"a": 1}}; {"name": "f", "parameters": {"a": 1}}'],
        ),
        (
            {"tool_call_parser": "hermes"},
            "auto",
            ["So:" + SPOKEN + SPOKEN],
        ),
    ],
)
async def test_an_event_has_one_piece_of_one_call(settings: Any, choice: str, says: Any) -> None:
    """LlamaIndex reads the first of each event and no other."""
    app = ScriptedModel(Script(says)).app(**settings)
    body = {"model": "m", "messages": HELLO, "tools": [FUNCTION], "tool_choice": choice}
    events = events_of((await post(app, CHAT, {**body, "stream": True})).text)
    calls = ["", ""]
    for event in events[:-1]:
        delta = event["choices"][0]["delta"]
        pieces = delta.get("tool_calls", [])
        assert len(pieces) < 2
        assert not (pieces and "content" in delta)
        for piece in pieces:
            calls[piece["index"]] += piece["function"]["arguments"].replace(" ", "")
    assert calls == ['{"a":1}'] * 2


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
async def test_a_forced_call_goes_before_the_form_of_the_text(choice: Any) -> None:
    """Agents ask for both: for calls first, and in the end for an answer of that form."""
    model = ScriptedModel()
    both = {"tools": [FUNCTION], "tool_choice": choice}
    body = {"model": "m", "messages": HELLO, **both}
    assert (await post(model.app(), CHAT, body)).status_code == 200
    answer = await post(model.app(), CHAT, {**body, "response_format": FORM})
    assert answer.status_code == 200, answer.text
    assert model.asked[1].parameters == model.asked[0].parameters


async def test_the_tool_and_the_form_of_a_response_may_be_one() -> None:
    """As instructor sends them."""
    model = ScriptedModel(Script(["{}"]))
    named = {"type": "function", "name": "f"}
    body = {
        "model": "m",
        "input": "hello",
        "text": {"format": {"type": "json_schema", "name": "f", "schema": PARAMETERS}},
        "tools": [{**named, "parameters": PARAMETERS}],
        "tool_choice": named,
    }
    answer = await post(model.app(), RESPONSES, body)
    assert answer.json()["output"][0]["type"] == "function_call", answer.text


async def test_reasoning_to_send_back_may_be_included() -> None:
    """As clients ask that keep nothing on the server; reasoning here is plain text."""
    model = ScriptedModel()
    body = {"model": "m", "input": "hello", "store": False}
    for included in (["reasoning.encrypted_content"], []):
        answer = await post(model.app(), RESPONSES, {**body, "include": included})
        assert answer.status_code == 200, answer.text
    for more in ({}, {"top_logprobs": 1, "temperature": 0}):
        wrong = {**body, "include": ["file_search_call.results"], **more}
        answer = await post(model.app(), RESPONSES, wrong)
        assert answer.json()["error"]["param"] == "include"


async def test_log_probabilities_may_be_included_in_a_response() -> None:
    model = ScriptedModel()
    included = ["message.output_text.logprobs", "reasoning.encrypted_content"]
    body = {"model": "m", "input": "hello", "include": included}
    answer = await post(model.app(), RESPONSES, body)
    assert answer.status_code == 200, answer.text
    (part,) = answer.json()["output"][0]["content"]
    assert [one["logprob"] for one in part["logprobs"]] == [-0.5]


async def test_reasoning_without_an_id_is_left_away() -> None:
    """As those send it back who keep conversations themselves: ids are of what is stored."""
    model = ScriptedModel()
    thought = {"type": "reasoning", "summary": [], "encrypted_content": "x"}
    said = {"role": "assistant", "content": "yes"}
    body = {"model": "m", "input": [*HELLO, thought, said, *HELLO]}
    answer = await post(model.app(), RESPONSES, body)
    assert answer.status_code == 200, answer.text
    assert model.prompt == "<user>hello<assistant>yes<user>hello<assistant>"


async def test_a_reference_is_refused_with_what_to_do() -> None:
    """As the AI SDK sends them for what it has got, unless it is told not to store."""
    body = {"model": "m", "input": [*HELLO, {"type": "item_reference", "id": "msg_1"}]}
    answer = await post(ScriptedModel().app(), RESPONSES, body)
    message = answer.json()["error"]["message"]
    assert message.startswith("input[1]: items of type 'item_reference' are not supported")
    assert "store" in message
