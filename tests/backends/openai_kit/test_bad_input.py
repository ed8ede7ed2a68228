"""Requests that are wrong, or meant to harm: what is refused, and how soon."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsBase
from pydantic_core import ValidationError

from backends.openai_kit.scripted import HELLO, Script, ScriptedModel, http_of, post
from penstock_backends.openai_kit.errors import ApiError
from penstock_backends.openai_kit.generator import ModelFacts
from penstock_backends.openai_kit.json_body import BodyReader

CHAT = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "f"}}
PART = {"type": "text", "text": "a"}


def schema_format(schema: Any) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}


@pytest.mark.parametrize(
    ("fields", "message", "param"),
    [
        ({"messages": []}, "at least one message", "messages"),
        ({"messages": None}, "messages: field required", "messages"),
        ({"messages": "hello"}, "messages: input should be a valid list", "messages"),
        ({"messages": [7]}, "messages[0]", "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content: field required", "messages"),
        ({"messages": [{"role": "king", "content": ""}]}, "'developer', 'system'", "messages"),
        ({"messages": [{"role": "user", "content": [PART] * 10_000}]}, "10001", "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "text: f", "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]},
         "messages[0].content[0].type: must be one of 'text', 'image_url'", "messages"),
        ({"messages": [{"role": "user", "content": [PART, {"type": "video_url"}]}]},
         "messages[0].content[1].type: must be one of 'text', 'image_url'", "messages"),
        ({"messages": [{"role": "user", "content": 5}]}, "content: input should be", "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {
                "url": "http://169.254.169.254/"}}]}]},
            "this model takes text, not 'image_url'",
            "messages",
        ),
        (
            {"messages": [{"role": "tool", "tool_call_id": "9", "content": "x"}]},
            "no message before it makes the call '9'",
            "messages",
        ),
        ({"messages": [{"role": "user", "content": "a" * 300}]}, "longer than", "messages"),
        ({"model": None}, "model: field required", "model"),
        ({"temperature": "hot"}, "temperature: input should be a valid number", "temperature"),
        ({"max_tokens": 0}, "'max_tokens' must be from 1 to 200", "max_tokens"),
        ({"max_tokens": 201}, "'max_tokens' must be from 1 to 200", "max_tokens"),
        ({"prompt_embeds": "gAJjYnVpbHRpbnMK"}, "unknown field 'prompt_embeds'", "prompt_embeds"),
        ({"max_token": 1}, "unknown field 'max_token'; did you mean 'max_tokens'?", "max_token"),
        ({"top_logprobs": 2}, "`top_logprobs` can only be used when `logprobs` is True",
         "top_logprobs"),
        ({"top_logprobs": 10**6, "logprobs": True}, "must be from 0 to 20", "top_logprobs"),
        (
            {"stream_options": {"include_usage": True}},
            "`stream_options` can only be used when `stream` is True",
            "stream_options",
        ),
        ({"stream": 1}, "'stream' must be a boolean", "stream"),
        ({"logit_bias": {"5": 1}}, "logit bias is not currently supported", "logit_bias"),
        ({"priority": 3}, "'priority' is not supported", "priority"),
        ({"functions": [{"name": "f"}]}, "use 'tools'", "functions"),
        ({"store": True}, "'store' is not supported", "store"),
        ({"stop": ["a"] * 100}, "'stop' holds 100 texts", "stop"),
        ({"tools": [], "tool_choice": "required"}, "needs 'tools'", "tool_choice"),
        ({"tools": [TOOL] * 129}, "'tools' hold 129 tools", "tools"),
        ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "type 'custom'", "tools"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "custom", "custom": {"name": "f"}}},
            "'tool_choice' of type 'custom'",
            "tool_choice",
        ),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "names 'g', which is not in 'tools'",
            "tool_choice",
        ),
        (
            {"tools": [TOOL], "tool_choice": "required", "structured_outputs": {"regex": "a"}},
            "leaves no form",
            "tool_choice",
        ),
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}},
            "not both",
            "response_format",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}},
            "has no 'schema'",
            "response_format",
        ),
        ({"chat_template_kwargs": [1]}, "must be an object", "chat_template_kwargs"),
        ({"add_generation_prompt": 7}, "must be a boolean", "add_generation_prompt"),
        (
            {"tools": [{**TOOL, "function": {"name": "f", "description": "a" * 900}}],
             "tool_choice": "required"},
            "longer than",
            "messages",
        ),
        ({"chat_template": "{{ 1 }}"}, "not trusted", "chat_template"),
        ({"chat_template_kwargs": {"messages": 1}}, "may not set", "chat_template_kwargs"),
        (
            {"response_format": schema_format({"$ref": "#"})},
            "refers to '#', which is not in it",
            "response_format",
        ),
        (
            {"response_format": schema_format(
                {"$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"})},
            "refers to itself by '#/$defs/a'",
            "response_format",
        ),
        (
            {"response_format": schema_format({"enum": [*range(100_000)]})},
            "is too large",
            "response_format",
        ),
    ],
)  # fmt: skip
async def test_a_wrong_field_is_named_at_once(fields: Any, message: str, param: str) -> None:
    model = ScriptedModel()
    body = json.dumps({"model": "m", "messages": HELLO, **fields}).encode()
    app = model.app()
    began = time.process_time()
    answer = await post(app, CHAT, body)
    assert time.process_time() - began < 1
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == param
    assert not model.asked


@pytest.mark.parametrize("field", ["stop", "messages", "tools", "modalities"])
def test_a_list_ends_with_its_first_error(field: str) -> None:
    """An error of each member of a long one would take seconds, in which nobody is served."""
    reader = BodyReader(CompletionCreateParamsBase, ignore_unknown=False)
    with pytest.raises(ApiError) as refused:
        reader.check({"model": "m", "messages": HELLO, field: [5] * 1000})
    cause = refused.value.__cause__
    assert isinstance(cause, ValidationError)
    assert cause.error_count() < 10


async def test_schemas_that_double_themselves_are_bounded() -> None:
    """Thirty definitions, each of twice the one before it, would come to a thousand million."""
    doubled = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)} | {
        "d30": {"type": "string"}
    }
    body = {
        "model": "m",
        "messages": HELLO,
        "response_format": schema_format({"$defs": doubled, "$ref": "#/$defs/d0"}),
    }
    answer = await post(ScriptedModel().app(), CHAT, body)
    assert "is too large" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"7",
        b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}',
        b'{"temperature":NaN}',
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b'{"n":' + b"9" * 100_000 + b"}",
    ],
)
async def test_what_is_not_json_is_refused(body: bytes) -> None:
    answer = await post(ScriptedModel().app(), CHAT, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_json"


async def test_a_body_longer_than_any_context_is_refused() -> None:
    answer = await post(ScriptedModel().app(), CHAT, b" " * (2 << 20))
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "content_too_large")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", CHAT, 405), ("POST", "/v1/nothing", 404), ("POST", "/v1/embeddings", 404)],
)
async def test_what_is_not_served_is_said(method: str, path: str, status: int) -> None:
    async with http_of(ScriptedModel().app()) as http:
        assert (await http.request(method, path)).status_code == status


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{% set x = messages.append(1) %}",
        "{{ raise_exception('only users speak') }}",
        "{{ 1 / 0 }}",
        "{% for i in range(999999999) %}a{% endfor %}",
        "{{ '%999999999999s' % 1 }}",
    ],
)
async def test_a_template_that_fails_is_an_error_of_the_request(template: str) -> None:
    model = ScriptedModel(facts=ModelFacts("m", 200, 1 << 20, 1, template))
    answer = await post(model.app(), CHAT, {"model": "m", "messages": HELLO})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "chat_template"


async def test_what_a_template_may_not_see_is_nothing() -> None:
    model = ScriptedModel(facts=ModelFacts("m", 200, 1 << 20, 1, "{{ ''.__class__ }}x"))
    await post(model.app(), CHAT, {"model": "m", "messages": HELLO})
    assert model.prompt == "x"


async def test_unknown_fields_may_be_ignored() -> None:
    body = {"model": "m", "messages": HELLO, "nonsense": 1}
    answer = await post(ScriptedModel().app(unknown_fields="ignore"), CHAT, body)
    assert answer.status_code == 200


async def test_a_request_may_bring_a_template_where_that_is_trusted() -> None:
    model = ScriptedModel(Script(["x"]))
    app = model.app(trust_request_chat_template=True)
    body = {"model": "m", "messages": HELLO, "chat_template": "{{ messages[0].content }}!"}
    assert (await post(app, CHAT, body)).status_code == 200
    assert model.prompt == "hello!"


async def test_arguments_that_are_no_text_are_passed_on_as_they_came() -> None:
    """A model that wrote half of a surrogate pair is told what it wrote."""
    arguments = r'{"city": "\ud83d"}'
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    said = {"role": "assistant", "content": "", "tool_calls": [call]}
    template = "{% for m in messages %}{{ m.tool_calls[0].function.arguments }}{% endfor %}"
    model = ScriptedModel(facts=ModelFacts("m", 200, 1 << 20, 1, template))
    answer = await post(model.app(), CHAT, {"model": "m", "messages": [said]})
    assert answer.status_code == 200
    assert model.prompt == arguments
