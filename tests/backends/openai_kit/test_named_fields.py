"""Each refusal names the field at fault, as the client of each route knows it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backends.openai_kit.scripted import HELLO, Script, ScriptedModel, post
from backends.openai_kit.test_encoders import Compass
from penstock.core.errors import InvalidRequestError
from penstock_backends.openai_kit.encoders import encoder_app
from penstock_backends.openai_kit.generator import ModelFacts

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
LEAST: dict[str, Any] = {
    CHAT: {"messages": HELLO},
    COMPLETIONS: {"prompt": "a"},
    RESPONSES: {"input": "a"},
    "/tokenize": {"prompt": "a"},
    "/detokenize": {"tokens": [65]},
    "/v1/embeddings": {"input": "north"},
    "/v1/rerank": {"query": "north", "documents": ["east"]},
    "/v1/score": {"text_1": "north", "text_2": "east"},
}
"""What each route needs, besides the model."""

FORM = {"name": "n", "schema": {"$ref": "#"}}
IMAGE = {"type": "input_image", "detail": "auto", "image_url": "http://169.254.169.254/"}
LONG = "a" * 300
MANY = ["north"] * 2049
HUGE = "a" * (1 << 20)

CASES = [
    (CHAT, {"tools": ["weather"]}, "tools"),
    (RESPONSES, {"tools": ["weather"]}, "tools"),
    (RESPONSES, {"tools": [7]}, "tools"),
    (CHAT, {"max_completion_tokens": 0}, "max_completion_tokens"),
    (CHAT, {"max_tokens": 0}, "max_tokens"),
    (CHAT, {"max_tokens": 5, "max_completion_tokens": 201}, "max_completion_tokens"),
    (CHAT, {"messages": [{"role": "user", "content": "a" * 190}]}, "messages"),
    (CHAT, {"messages": [{"role": "user", "content": LONG}]}, "messages"),
    (CHAT, {"n": "two"}, "n"),
    (CHAT, {"stop": {"a": 1}}, "stop"),
    (CHAT, {"reasoning_effort": "much"}, "reasoning_effort"),
    (CHAT, {"stream_options": {"include_usage": True}}, "stream_options"),
    (CHAT, {"chat_template": "{{"}, "chat_template"),
    (CHAT, {"chat_template": "{{ 1 / 0 }}"}, "chat_template"),
    (CHAT, {"chat_template": 1}, "chat_template"),
    (COMPLETIONS, {"prompt": None}, "prompt"),
    (COMPLETIONS, {"prompt": ""}, "prompt"),
    (COMPLETIONS, {"prompt": []}, "prompt"),
    (COMPLETIONS, {"prompt": [[]]}, "prompt"),
    (COMPLETIONS, {"prompt": [1 << 21]}, "prompt"),
    (COMPLETIONS, {"prompt": "a" * 200}, "prompt"),
    (COMPLETIONS, {"prompt": LONG}, "prompt"),
    (COMPLETIONS, {"prompt": ["a"] * 129}, "prompt"),
    (COMPLETIONS, {"prompt": {"a": 1}}, "prompt"),
    (COMPLETIONS, {"max_tokens": 0}, "max_tokens"),
    (COMPLETIONS, {"max_tokens": 201}, "max_tokens"),
    (COMPLETIONS, {"best_of": 3}, "best_of"),
    (COMPLETIONS, {"suffix": "a"}, "suffix"),
    (COMPLETIONS, {"echo": True, "logprobs": 1}, "echo"),
    (COMPLETIONS, {"response_format": {"type": "json_schema"}}, "response_format"),
    (COMPLETIONS, {"stream_options": {"include_usage": True}}, "stream_options"),
    (RESPONSES, {"input": None}, "input"),
    (RESPONSES, {"input": []}, "input"),
    (RESPONSES, {"input": "a" * 190}, "input"),
    (RESPONSES, {"input": LONG}, "input"),
    (RESPONSES, {"input": [{"type": "item_reference", "id": "x"}]}, "input"),
    (RESPONSES, {"input": [{"id": "x"}]}, "input"),
    (RESPONSES, {"input": [{"role": "user", "content": [IMAGE]}]}, "input"),
    (RESPONSES, {"input": [{"type": "function_call_output", "call_id": "9", "output": "x"}]},
     "input"),
    (RESPONSES, {"max_output_tokens": 0}, "max_output_tokens"),
    (RESPONSES, {"max_output_tokens": 201}, "max_output_tokens"),
    (RESPONSES, {"top_logprobs": 1000}, "top_logprobs"),
    (RESPONSES, {"text": {"format": {"type": "json_schema", **FORM}}}, "text"),
    (RESPONSES, {"tools": [{"type": "web_search"}]}, "tools"),
    (RESPONSES, {"tool_choice": "required"}, "tool_choice"),
    (RESPONSES, {"previous_response_id": "x"}, "previous_response_id"),
    (RESPONSES, {"background": True}, "background"),
    (RESPONSES, {"max_tokens": 5}, "max_tokens"),
    (RESPONSES, {"messages": HELLO}, "messages"),
    ("/tokenize", {"prompt": None}, "prompt"),
    ("/tokenize", {"prompt": LONG}, "prompt"),
    ("/tokenize", {"prompt": None, "messages": []}, "messages"),
    ("/tokenize", {"nonsense": 1}, "nonsense"),
    ("/detokenize", {"tokens": [1 << 21]}, "tokens"),
    ("/detokenize", {"tokens": [65] * 201}, "tokens"),
    ("/detokenize", {"tokens": "a"}, "tokens"),
    ("/v1/embeddings", {"input": []}, "input"),
    ("/v1/embeddings", {"input": [1, 2]}, "input"),
    ("/v1/embeddings", {"input": MANY}, "input"),
    ("/v1/embeddings", {"input": HUGE + "a"}, "input"),
    ("/v1/embeddings", {"dimensions": 1}, "dimensions"),
    ("/v1/embeddings", {"encoding_format": "hex"}, "encoding_format"),
    ("/v1/embeddings", {"stream": True}, "stream"),
    ("/v1/rerank", {"query": None}, "query"),
    ("/v1/rerank", {"documents": []}, "documents"),
    ("/v1/rerank", {"documents": MANY}, "documents"),
    ("/v1/rerank", {"documents": [HUGE]}, "documents"),
    ("/v1/rerank", {"query": HUGE + "a"}, "query"),
    ("/v1/rerank", {"top_n": 0}, "top_n"),
    ("/v1/score", {"text_1": []}, "text_1"),
    ("/v1/score", {"text_2": []}, "text_2"),
    ("/v1/score", {"text_1": ["a", "b"]}, "text_1"),
    ("/v1/score", {"text_2": HUGE}, "text_2"),
    *((path, {"modle": "m"}, "modle") for path in LEAST),
]  # fmt: skip


@pytest.mark.parametrize(("path", "fields", "param"), CASES)
async def test_a_refusal_names_its_field(path: str, fields: Any, param: str) -> None:
    encodes = path in ("/v1/embeddings", "/v1/rerank", "/v1/score")
    app = (
        encoder_app(Compass())
        if encodes
        else ScriptedModel().app(trust_request_chat_template="chat_template" in fields)
    )
    given = {"model": "m", **LEAST[path], **fields}
    body = {name: value for name, value in given.items() if value is not None}
    answer = await post(app, path, body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param), error
    other = {"max_completion_tokens", "max_tokens", "messages", "response_format"} - {param, *body}
    assert not [name for name in other if f"'{name}'" in error["message"]]


CALL: Any = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
RESULT: Any = {"type": "function_call_output", "call_id": "1"}


@pytest.mark.parametrize(
    ("items", "place"),
    [
        ([{"role": "user", "content": [IMAGE]}], "input[0].content[0]: this model takes text"),
        ([{**RESULT, "output": "x"}], "input[0]: no message before it makes the call '1'"),
        ([CALL, CALL, {**RESULT, "output": [IMAGE]}], "input[2].output[0]: this model takes text"),
        ([{"role": "king", "content": "a"}], "input[0].role: must be one of 'user', "),
    ],
)
async def test_a_refusal_of_an_item_says_where_it_is(items: Any, place: str) -> None:
    """As the client has sent it, which is not where it is among the messages."""
    body = {"model": "m", "instructions": "Be brief.", "input": items}
    error = (await post(ScriptedModel().app(), RESPONSES, body)).json()["error"]
    assert error["message"].startswith(place)
    assert "_call'" not in error["message"]  # a type of items, which is no role


@pytest.mark.parametrize(
    ("path", "fields", "sampling", "param"),
    [
        (CHAT, {"top_logprobs": 2, "logprobs": True}, "logprobs", "top_logprobs"),
        (CHAT, {"logprobs": True}, "logprobs", "logprobs"),
        (CHAT, {"temperature": 9}, "temperature", "temperature"),
        (CHAT, {"response_format": {"type": "json_object"}}, "structured_outputs",
         "response_format"),
        (CHAT, {"structured_outputs": {"regex": "("}}, "structured_outputs", "structured_outputs"),
        (CHAT, {"tools": [{"type": "function", "function": {"name": "f"}}],
                "tool_choice": "required"}, "structured_outputs", "tools"),
        (COMPLETIONS, {"logprobs": 2}, "logprobs", "logprobs"),
        (COMPLETIONS, {"response_format": {"type": "json_object"}}, "structured_outputs",
         "response_format"),
        (RESPONSES, {"text": {"format": {"type": "json_object"}}}, "structured_outputs", "text"),
        (RESPONSES, {"max_output_tokens": 3}, "max_tokens", "max_output_tokens"),
    ],
)  # fmt: skip
async def test_a_refusal_by_the_engine_names_the_clients_field(
    path: str, fields: Any, sampling: str, param: str
) -> None:
    refusal = InvalidRequestError(f"sampling parameter '{sampling}' is not to be had")
    model = ScriptedModel(Script(refusal=refusal))
    answer = await post(model.app(), path, {"model": "m", **LEAST[path], **fields})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, param)
    assert error["message"] == f"'{param}' is not to be had"


async def test_a_model_without_a_template_refuses_messages() -> None:
    model = ScriptedModel(facts=ModelFacts("m", 200, 1 << 20, 1))
    answer = await post(model.app(), CHAT, json.dumps({"model": "m", **LEAST[CHAT]}).encode())
    assert answer.json()["error"]["param"] == "messages"
