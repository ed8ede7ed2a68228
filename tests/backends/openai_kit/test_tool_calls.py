"""Tool calls: each way of making them, and every way of cutting the text."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.openai_kit.scripted import HELLO, Script, ScriptedModel
from penstock_backends.openai_kit.chat import whole_message
from penstock_backends.openai_kit.parsers.answer_parts import AnswerDelta, AnswerParser
from penstock_backends.openai_kit.parsers.reasoning import REASONING_PARSERS
from penstock_backends.openai_kit.parsers.tool_parsers import TOOL_PARSERS
from penstock_backends.openai_kit.tool_choice import ToolPlan

TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
    for name in ("weather", "time")
]
NAMED: Any = {"type": "function", "function": {"name": "time"}}
ARGUMENTS = '{"city": "Os\\"lo }]", "n": [1, {"a": {}}]}'
BOTH = f'[{{"name": "weather", "parameters": {ARGUMENTS}}}, {{"name":"time","parameters":{{}}}}]'

CALLS = [["weather", ARGUMENTS], ["time", "{}"]]

SPOKEN = [
    ("hermes", f'Let me see.\n<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n'
        '</tool_call>\n<tool_call>{"name": "time", "arguments": {}}</tool_call>', 2),
    ("hermes", "<tool_call>{broken</tool_call> and <tool", 0),
    ("hermes", '<tool_call>{"name": "time", "arguments": {}}', 1),
    ("llama3_json", f'{{"name": "weather", "parameters": {ARGUMENTS}}}', 1),
    ("llama3_json", '<|python_tag|>{"name": "time", "parameters": {}}; {"name": "weather"}', 2),
    ("llama3_json", '{"an": "object"} that is no call', 0),
    ("llama3_json", "no call", 0),
    ("pythonic", '[weather(city="Oslo", days=[1, 2]), time()]', 2),
    ("hermes", '<tool_call>{"name": "time", "arguments": "{}"}</tool_call> <tool_call>[', 1),
    ("hermes", '<tool_call>{"name": "time", "arguments": 7}</tool_call>', 0),
    ("llama3_json", '{"type": "function", "function": {"name": "time"}} ', 1),
    ("pythonic", "[time(*a), 7]", 0),
    ("pythonic", "[time(**a)]", 0),
    ("pythonic", "[1, 2", 0),
    ("pythonic", '[os.system(city="x" + "y")]', 0),
    ("pythonic", "[time(a={1})]", 0),
    ("pythonic", '[time(a=b"1")]', 0),
    ("pythonic", '[time(a={(1, 2): b"1"})]', 0),
    ("pythonic", r'[time(a="\ud83d")]', 0),
    ("hermes", r'<tool_call>{"name": "time", "arguments": {"a": "\ud83d"}}</tool_call>', 0),
    ("hermes", r'<tool_call>{"name": "\ud83d"}</tool_call>', 0),
    ("hermes", '<tool_call>{"name": "time", "arguments": {"a": NaN}}</tool_call>', 0),
    ("hermes", r'<tool_call> {"name": "time", "arguments": {"a": "\ud83d\ude00"}} </tool_call>', 1),
    ("llama3_json", r'{"name": "time", "parameters": {"a": "\ud83d"}}', 0),
    ("mistral", '[TOOL_CALLS] [{"name": "weather", "arguments": {}}, {"name": "time"}]', 2),
    ("mistral", '[{"name": "time", "arguments": {}}]', 1),
    ("mistral", '[TOOL_CALLS]weather{"city": "Oslo"}[TOOL_CALLS]time[ARGS]{}', 2),
    ("mistral", '[TOOL_CALLS] [{"name": "time", "arguments": 7}]', 0),
    ("mistral", "[TOOL_CALLS]time and more", 0),
    ("mistral", "[{1: 2}]", 0),
    ("mistral", "[see above]", 0),
]  # fmt: skip


def told(parser: AnswerParser, pieces: list[str]) -> tuple[Any, ...]:
    """What an answer in these pieces comes to, without the ids of calls."""
    deltas: list[AnswerDelta] = [parser.feed(piece) for piece in pieces]
    message = whole_message([*deltas, parser.flush()])
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return message["content"], message.get("reasoning"), calls


def cut(text: str, places: set[int]) -> list[str]:
    ends = sorted(place % (len(text) + 1) for place in places)
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


@pytest.mark.contract("OA-17")
@pytest.mark.parametrize(("name", "text", "count"), SPOKEN)
@given(places=st.sets(st.integers(0, 300)))
def test_calls_are_the_same_however_the_text_is_cut(
    name: str, text: str, count: int, places: set[int]
) -> None:
    def parser() -> AnswerParser:
        return AnswerParser(ToolPlan("auto", TOOLS), None, TOOL_PARSERS[name]())

    whole = told(parser(), [text])
    assert len(whole[2]) == count
    assert told(parser(), [*text]) == whole
    assert told(parser(), cut(text, places)) == whole


@pytest.mark.parametrize(("name", "text", "count"), [one for one in SPOKEN if not one[2]])
def test_what_cannot_be_parsed_is_content(name: str, text: str, count: int) -> None:
    parser = AnswerParser(ToolPlan("auto", TOOLS), None, TOOL_PARSERS[name]())
    assert told(parser, [text]) == (text, None, [])


@pytest.mark.contract("OA-17")
@pytest.mark.parametrize(("longer", "count"), [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("hermes", "<tool_call>", "</tool_call>"),
        ("llama3_json", "", ""),
        ("mistral", "[", "]"),
    ],
)
def test_calls_of_131072_characters_are_read_and_longer_ones_are_content(
    name: str, before: str, after: str, longer: int, count: int
) -> None:
    kept_back = 0 if name == "hermes" else len(before + after)
    call = '{"name": "time", "arguments": {"a": "%s"}}'
    filling = "x" * (131072 + longer - kept_back - len(call) + 2)
    text = f"{before}{call % filling}{after}"
    parser = AnswerParser(ToolPlan("auto", TOOLS), None, TOOL_PARSERS[name]())
    content, _, calls = told(parser, [text])
    assert (content, len(calls)) == (None if count else text, count)


@pytest.mark.parametrize("stream", [False, True])
async def test_half_of_a_surrogate_pair_in_a_call_is_content(stream: bool) -> None:
    text = r'<tool_call>{"name": "time", "arguments": {"a": "\ud83d"}}</tool_call>'
    client = ScriptedModel(Script([text])).client(tool_call_parser="hermes")
    create: Any = client.chat.completions.create
    answer = await create(model="m", messages=HELLO, tools=TOOLS, stream=stream)
    if stream:
        deltas = [chunk.choices[0].delta.content async for chunk in answer if chunk.choices]
        assert "".join(delta or "" for delta in deltas) == text
    else:
        assert answer.choices[0].message.content == text


@given(places=st.sets(st.integers(0, 200)), spaces=st.sampled_from(["", " ", "\n \t"]))
def test_required_calls_are_the_same_however_the_text_is_cut(places: set[int], spaces: str) -> None:
    text = BOTH.replace(', {"name"', f'{spaces},{spaces}{{{spaces}"name"') + spaces
    wanted = [{"name": name, "arguments": arguments} for name, arguments in CALLS]
    for pieces in ([text], [*text], cut(text, places)):
        parser = AnswerParser(ToolPlan("required", TOOLS), None, None)
        assert told(parser, pieces) == (None, None, wanted)


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ('[{"name": "wea', '[{"name": "wea', []),
        ('[{"name": "weather", "parameters": ', None, [("weather", "")]),
        ('[{"name": "weather", "parameters": {"ci', None, [("weather", '{"ci')]),
        ('[{"name": "time", "parameters": {}}, {"na', '{"na', [("time", "{}")]),
        ('[{"name": "time", "parameters": {}}, \n', None, [("time", "{}")]),
        ("[", "", []),
    ],
)
@given(places=st.sets(st.integers(0, 60)))
def test_a_required_call_that_is_cut_off_shows_what_there_is(
    text: str, content: str | None, calls: list[tuple[str, str]], places: set[int]
) -> None:
    parser = AnswerParser(ToolPlan("required", TOOLS), None, None)
    shown, _, made = told(parser, cut(text, places))
    assert shown == content
    assert [(call["name"], call["arguments"]) for call in made] == calls


@pytest.mark.parametrize("stream", [False, True])
async def test_a_required_call_that_is_cut_off_is_text_for_clients(stream: bool) -> None:
    client = ScriptedModel(Script(['[{"name": "wea'], reason="length")).client()
    made: Any = await client.chat.completions.create(
        model="m", messages=HELLO, tools=TOOLS, tool_choice="required", stream=stream
    )
    choices = [chunk.choices[0] async for chunk in made] if stream else made.choices
    texts = [one.delta.content if stream else one.message.content for one in choices]
    assert "".join(text or "" for text in texts) == '[{"name": "wea'
    assert choices[-1].finish_reason == "length"


@pytest.mark.parametrize("name", [*REASONING_PARSERS])
@given(
    text=st.lists(
        st.sampled_from([" ", "\n", "<think>", "</think>", "<", "think>", "</", "yes"])
    ).map("".join),
    places=st.sets(st.integers(0, 60)),
)
def test_reasoning_is_the_same_however_the_text_is_cut(
    name: str, text: str, places: set[int]
) -> None:
    def parser() -> AnswerParser:
        return AnswerParser(ToolPlan(), REASONING_PARSERS[name](), None)

    whole = told(parser(), [text])
    assert told(parser(), [*text]) == whole
    assert told(parser(), cut(text, places)) == whole


async def streamed(client: openai.AsyncOpenAI, **asked: Any) -> tuple[list[Any], str | None]:
    """The calls of a stream, put together, and why it ended."""
    calls: list[Any] = []
    reason = None
    stream = await client.chat.completions.create(
        model="m", messages=HELLO, tools=TOOLS, stream=True, **asked
    )
    async for chunk in stream:
        reason = chunk.choices[0].finish_reason
        for call in chunk.choices[0].delta.tool_calls or ():
            if call.id is not None and call.function is not None:
                calls.append([call.function.name, ""])
            if call.function is not None:
                calls[call.index][1] += call.function.arguments or ""
    return calls, reason


@pytest.mark.contract("OA-17")
@pytest.mark.parametrize(
    ("choice", "says", "calls", "reason"),
    [
        (
            "required",
            [BOTH[:50], BOTH[50:]],
            [*CALLS],
            "tool_calls",
        ),
        (NAMED, ['{"ci', 'ty": 1}'], [["time", '{"city": 1}']], "stop"),
        ("auto", ['{"name": "time", ', '"parameters": {}}'], [["time", "{}"]], "tool_calls"),
        ("none", ['{"name": "time"}'], [], "stop"),
    ],
)
async def test_streamed_calls_are_those_of_the_whole_answer(
    choice: Any, says: list[str], calls: list[Any], reason: str
) -> None:
    client = ScriptedModel(Script(says)).client(tool_call_parser="llama3_json")
    assert await streamed(client, tool_choice=choice) == (calls, reason)
    answer = await client.chat.completions.create(
        model="m", messages=HELLO, tools=TOOLS, tool_choice=choice
    )
    message = answer.choices[0].message
    made = [call.function for call in message.tool_calls or () if call.type == "function"]
    assert [[one.name, one.arguments] for one in made] == calls
    assert answer.choices[0].finish_reason == reason


@pytest.mark.contract("OA-17")
async def test_forced_calls_are_asked_of_the_engine_as_a_schema() -> None:
    model = ScriptedModel(Script([BOTH]))
    client = model.client()
    await client.chat.completions.create(
        model="m", messages=HELLO, tools=TOOLS, tool_choice="required", parallel_tool_calls=False
    )
    schema = json.loads(model.asked[0].parameters["structured_outputs"]["json"])
    names = [one["properties"]["name"]["enum"] for one in schema["items"]["anyOf"]]
    assert (names, schema["maxItems"]) == ([["weather"], ["time"]], 1)


@pytest.mark.contract("OA-17")
async def test_a_model_without_a_parser_says_so() -> None:
    client = ScriptedModel().client()
    with pytest.raises(openai.BadRequestError) as refused:
        await client.chat.completions.create(model="m", messages=HELLO, tools=TOOLS)
    assert refused.value.body == {
        "message": "tool_choice 'auto' needs a tool parser; 'm' has none "
        '(set "openai": {"tool_call_parser": ...})',
        "type": "invalid_request_error",
        "param": "tool_choice",
        "code": None,
    }


@pytest.mark.contract("OA-17")
async def test_one_call_at_a_time_where_only_one_is_wanted() -> None:
    says = '{"name": "time"}; {"name": "weather"}'
    client = ScriptedModel(Script([says])).client(tool_call_parser="llama3_json")
    calls, _ = await streamed(client, parallel_tool_calls=False)
    assert calls == [["time", "{}"]]
