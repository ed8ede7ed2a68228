"""Completions, tokens and responses over a scripted model."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types import Completion
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from backends.openai_kit.scripted import HELLO, Script, ScriptedModel, events_of, post
from penstock.core.errors import UnavailableError

COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
TOOL: Any = {"type": "function", "name": "time", "parameters": {}, "strict": False}


@pytest.mark.contract("OA-03")
async def test_several_prompts_are_answered_in_their_order() -> None:
    model = ScriptedModel()
    body = {"model": "m", "prompt": ["ab", "c"], "n": 2, "echo": True, "max_tokens": 4}
    answer = await post(model.app(), COMPLETIONS, body)
    parsed = Completion.model_validate(answer.json(), strict=True)
    assert [c.text for c in parsed.choices] == ["abHello you"] * 2 + ["cHello you"] * 2
    assert [c.index for c in parsed.choices] == [0, 1, 2, 3]
    assert answer.json()["usage"]["prompt_tokens"] == 3
    assert all(steps.closed for steps in model.steps)


async def test_streams_of_several_prompts_are_told_apart() -> None:
    body = {
        "model": "m",
        "prompt": [[97], [98, 99]],
        "stream": True,
        "logprobs": 1,
        "stream_options": {"include_usage": True},
    }
    answer = await post(ScriptedModel().app(), COMPLETIONS, body)
    *chunks, last = events_of(answer.text)
    assert last == "[DONE]"
    for index in (0, 1):
        mine = [c["choices"][0] for c in chunks[:-1] if c["choices"][0]["index"] == index]
        assert "".join(choice["text"] for choice in mine) == "Hello you"
        assert [choice["logprobs"]["text_offset"] for choice in mine[:-1]] == [[0], [5]]
        assert mine[-1]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["total_tokens"] == 7
    for chunk in chunks:
        Completion.model_validate(
            {**chunk, "choices": [{**c, "finish_reason": "stop"} for c in chunk["choices"]]}
        )


@pytest.mark.parametrize("stream", [False, True])
async def test_an_echo_without_an_answer_is_the_prompt(stream: bool) -> None:
    model = ScriptedModel()
    body = {"model": "m", "prompt": ["ab", "c"], "echo": True, "max_tokens": 0, "stream": stream}
    answer = await post(model.app(), COMPLETIONS, body)
    chunks = events_of(answer.text)[:-1] if stream else [answer.json()]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    told = [(one["index"], one["text"], one["finish_reason"]) for one in choices]
    assert sorted(told) == [(0, "ab", "length"), (1, "c", "length")]
    assert [asked.parameters["max_tokens"] for asked in model.asked] == [1, 1]


@pytest.mark.parametrize("more", [{}, {"type": "message", "id": "msg_1", "status": None}])
async def test_an_answer_may_be_sent_back_without_what_its_type_demands(more: Any) -> None:
    """As LangChain does, and who writes it by hand."""
    model = ScriptedModel()
    answered = {"role": "assistant", "content": [{"type": "output_text", "text": "so"}], **more}
    body = {"model": "m", "input": [*HELLO, answered, *HELLO]}
    answer = await post(model.app(), RESPONSES, body)
    assert answer.status_code == 200, answer.text
    assert model.prompt == "<user>hello<assistant>so<user>hello<assistant>"


@pytest.mark.contract("OA-13")
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [1 << 20]}, "prompt"),
        ({"prompt": "a" * 201}, "prompt"),
        ({"suffix": "b"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"best_of": 1, "n": 2, "temperature": 1}, "best_of"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"echo": True, "logprobs": 1, "max_tokens": 0}, "echo"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
async def test_what_a_completion_cannot_keep_is_refused(fields: Any, param: str) -> None:
    body = {"model": "m", "prompt": "a", **fields}
    answer = await post(ScriptedModel().app(), COMPLETIONS, body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("tokens", [[1.0], [1, "2"], [True], [[1], ["2"]], [[]], [[1.0]], [2**70]])
async def test_token_ids_are_whole_numbers(tokens: Any) -> None:
    app = ScriptedModel().app()
    asked = [("/v1/completions", "prompt", tokens)]
    if tokens != [[]] and not isinstance(tokens[0], list):
        asked.append(("/detokenize", "tokens", tokens))
    for path, field, given in asked:
        answer = await post(app, path, {"model": "m", field: given})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == field


@pytest.mark.contract("OA-13")
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"suffix": "b"}, "suffix is not currently supported"),
        ({"prompt": ""}, "prompt must be non-empty"),
        ({"logit_bias": {"5": 1}}, "logit bias is not currently supported"),
        (
            {"stream_options": {"include_usage": True}},
            "`stream_options` can only be used when `stream` is True",
        ),
    ],
)
async def test_what_triton_refuses_is_refused_in_its_words(fields: Any, message: str) -> None:
    body = {"model": "m", "prompt": "a", **fields}
    answer = await post(ScriptedModel().app(), "/v1/completions", body)
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, message)


async def test_completions_are_sixteen_tokens_long_by_default() -> None:
    model = ScriptedModel()
    await post(model.app(), COMPLETIONS, {"model": "m", "prompt": "a"})
    assert model.asked[0].parameters["max_tokens"] == 16


async def test_texts_chats_and_tokens() -> None:
    app = ScriptedModel().app()
    answer = (await post(app, "/tokenize", {"prompt": "ab", "return_token_strs": True})).json()
    assert answer == {
        "count": 2,
        "max_model_len": 200,
        "tokens": [97, 98],
        "token_strs": ["a", "b"],
    }
    assert (await post(app, "/tokenize", {"messages": HELLO})).json()["count"] == 22
    assert (await post(app, "/detokenize", {"tokens": [104, 105]})).json() == {"prompt": "hi"}
    assert (await post(app, "/detokenize", {"tokens": ["x"]})).status_code == 400


async def test_a_response_is_one_of_the_client() -> None:
    model = ScriptedModel(Script(["<think>hm</think>", "Hi"], reason="length"))
    body = {
        "model": "m",
        "input": "hello",
        "instructions": "Be brief.",
        "max_output_tokens": 3,
        "text": {"format": {"type": "text"}},
    }
    answer = await post(model.app(reasoning_parser="qwen3"), RESPONSES, body)
    response = Response.model_validate(answer.json(), strict=True)
    assert response.output_text == "Hi"
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.status == "incomplete"
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens == 2
    assert model.prompt == "<system>Be brief.<user>hello<assistant>"


async def test_events_of_a_response_come_to_the_whole() -> None:
    says = ["<think>h", "m</think>", "Hi", '<tool_call>{"name":"time","arguments":{}}</tool_call>']
    app = ScriptedModel(Script(says)).app(reasoning_parser="qwen3", tool_call_parser="hermes")
    body = {"model": "m", "input": HELLO, "tools": [TOOL], "stream": True, "top_logprobs": 1}
    events = events_of((await post(app, RESPONSES, body)).text)
    adapter: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    for event in events:
        adapter.validate_python(event)
    assert [event["sequence_number"] for event in events] == [*range(len(events))]
    assert events[-1]["type"] == "response.completed"
    whole = (await post(app, RESPONSES, {**body, "stream": False})).json()
    streamed = events[-1]["response"]["output"]
    assert [item["type"] for item in streamed] == ["reasoning", "message", "function_call"]
    assert [item.get("content") for item in streamed[:1]] == [whole["output"][0]["content"]]
    assert streamed[2]["arguments"] == whole["output"][2]["arguments"] == "{}"
    deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
    assert "".join(deltas) == "Hi"


@pytest.mark.parametrize("left", [{}, {"strict": None}, {"strict": None, "parameters": None}])
async def test_a_function_may_leave_away_what_has_a_default(left: Any) -> None:
    """OpenAI's types demand them, and its API does not."""
    model = ScriptedModel()
    body = {"model": "m", "input": "a", "tools": [{"type": "function", "name": "time", **left}]}
    answer = await post(model.app(tool_call_parser="hermes"), RESPONSES, body)
    assert answer.status_code == 200, answer.text
    Response.model_validate(answer.json(), strict=True)


async def test_tokens_of_a_response_are_counted_before_it_is_asked_for() -> None:
    model = ScriptedModel()
    body: Any = {"model": "m", "input": HELLO, "instructions": "Be brief."}
    async with model.client() as client:
        counted = await client.responses.input_tokens.count(**body)
        response = await client.responses.create(**body)
    assert counted.object == "response.input_tokens"
    assert response.usage is not None
    assert counted.input_tokens == response.usage.input_tokens == len(model.prompt)


async def test_tools_are_counted_without_a_parser_of_their_calls() -> None:
    body = {"model": "m", "input": "a", "tools": [TOOL]}
    answer = await post(ScriptedModel().app(), f"{RESPONSES}/input_tokens", body)
    assert answer.json()["input_tokens"] == len("<user>a<assistant>")


async def test_calls_and_their_results_are_messages() -> None:
    model = ScriptedModel()
    given = [
        {"role": "user", "content": [{"type": "input_text", "text": "when"}]},
        {"type": "reasoning", "id": "r", "summary": []},
        {"type": "function_call", "call_id": "1", "name": "time", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "noon"},
    ]
    answer = await post(model.app(), RESPONSES, {"model": "m", "input": given})
    assert answer.status_code == 200
    assert model.prompt == "<user>when<assistant><tool>noon<assistant>"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": None}, "input"),
        ({"previous_response_id": "r"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"store": True}, "store"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
        ({"input": "a" * 300}, "input"),
        ({"inputs": "a"}, "inputs"),
    ],
)
async def test_what_a_response_cannot_keep_is_refused(fields: Any, param: str) -> None:
    body = {"model": "m", "input": "a", **fields}
    answer = await post(ScriptedModel().app(), RESPONSES, body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_a_response_that_fails_ends_with_its_own_event() -> None:
    app = ScriptedModel(Script(error=UnavailableError("the engine failed"))).app()
    body = {"model": "m", "input": "a", "stream": True}
    events = events_of((await post(app, RESPONSES, body)).text)
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["message"] == "the engine failed"
    answer = await post(app, RESPONSES, {**body, "stream": False})
    assert answer.status_code == 503


async def test_the_form_and_the_tool_of_a_response_are_asked_of_the_engine() -> None:
    model = ScriptedModel(Script(["{}"]))
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}}
    body: Any = {
        "model": "m",
        "input": "a",
        "text": {"format": form},
        "reasoning": {"effort": "low"},
    }
    await post(model.app(), RESPONSES, body)
    assert model.asked[0].parameters["structured_outputs"] == {"json": '{"type": "object"}'}
    named = {"tools": [TOOL], "tool_choice": {"type": "function", "name": "time"}}
    answer = (await post(model.app(), RESPONSES, {"model": "m", "input": "a", **named})).json()
    assert answer["output"][0]["name"] == "time"
    assert answer["tool_choice"] == named["tool_choice"]


async def test_an_error_of_one_prompt_ends_the_others() -> None:
    model = ScriptedModel(Script(error=UnavailableError("gone")))
    body = {"model": "m", "prompt": ["a", "b"], "stream": True}
    answer = await post(model.app(), COMPLETIONS, body)
    assert events_of(answer.text)[-1]["error"]["message"] == "gone"
    assert all(steps.closed for steps in model.steps)


@pytest.mark.contract("OA-18")
async def test_a_completion_may_be_json() -> None:
    model = ScriptedModel(Script(["{}"]))
    form = {"type": "json_object"}
    body = {"model": "m", "prompt": [97], "echo": True, "response_format": form}
    answer = await post(model.app(), COMPLETIONS, body)
    assert answer.json()["choices"][0]["text"] == "a{}"
    assert model.asked[0].parameters["structured_outputs"] == {"json": {"type": "object"}}
    answer = await post(model.app(), COMPLETIONS, {**body, "response_format": {"type": "x"}})
    assert answer.json()["error"]["param"] == "response_format"
