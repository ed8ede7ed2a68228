"""Clients of OpenAI's API, each asked for what people use it for; prints a line for each thing.

    python tests/programs/openai_clients.py URL MODEL [CLIENT ...] [--constants] [--without-tools]

A URL is http://localhost:8000/v1, the clients are `openai`, `litellm` and `langchain`, and
without a name all are asked. With `--constants` the arguments of a tool are one of two constants,
so that a call ends: into others the models of tests put white space without end. With
`--without-tools` nothing is asked for that a model from text to text has not. LiteLLM and
LangChain take older releases of the package `openai` than the tests do, so they are in an
environment of their own (`make tools`).
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

MESSAGES: Final[Any] = [{"role": "user", "content": "How do I open a file?"}]
PARITY: Final[Any] = {
    "type": "object",
    "properties": {"odd": {"type": "boolean"}},
    "required": ["odd"],
    "additionalProperties": False,
}
CONSTANTS: Final[Any] = {"type": "object", "enum": [{"odd": True}, {"odd": False}]}
"""The same arguments without white space; our own application refuses such a schema."""


def parity_tool(parameters: Any = PARITY) -> Any:
    """A tool with such arguments."""
    function = {
        "name": "parity",
        "description": "Whether a number is odd.",
        "strict": True,  # without it vLLM leaves the form of arguments to the model
        "parameters": parameters,
    }
    return {"type": "function", "function": function}


NAMED: Final[Any] = {"type": "function", "function": {"name": "parity"}}
"""The choice of that tool: a model of the tests would not choose it."""

LENGTH: Final = 300


def openai_client(url: str, model: str, tool: Any) -> Iterator[str]:
    """The official client, in both forms."""
    import openai

    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) as client:
        yield from _asked(client, url, model, tool)


def _asked(client: Any, url: str, model: str, tool: Any) -> Iterator[str]:
    asked: Any = {"model": model, "messages": MESSAGES, "temperature": 0, "max_tokens": 16}
    assert model in [one.id for one in client.models.list()]
    yield "models"
    whole = client.chat.completions.create(**asked)
    text = whole.choices[0].message.content
    assert text
    assert whole.usage is not None
    assert whole.usage.completion_tokens
    options: Any = {"include_usage": True}
    chunks = [*client.chat.completions.create(**asked, stream=True, stream_options=options)]
    assert text == "".join(one.choices[0].delta.content or "" for one in chunks if one.choices)
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    yield "chat"
    completion = client.completions.create(model=model, prompt="The file is", max_tokens=4)
    assert completion.choices[0].text
    yield "completion"
    with client.chat.completions.with_streaming_response.create(**asked, stream=True) as raw:
        assert raw.headers["x-request-id"]
        assert [*raw.iter_lines()][-2:] == ["data: [DONE]", ""]
    yield "with_streaming_response"
    word: Any = {**asked, "stop": [" "]}  # an answer that is cut off by its length is an error
    with client.chat.completions.stream(**word) as stream:
        assert [event.type for event in stream][-1] == "content.done"
        whole_word = client.chat.completions.create(**word).choices[0].message.content
        assert stream.get_final_completion().choices[0].message.content == whole_word
    yield "stream helper"
    given: Any = {"model": model, "input": "How do I open a file?", "temperature": 0}
    response = client.responses.create(**given, max_output_tokens=16)
    with client.responses.stream(**given, max_output_tokens=16) as events:
        deltas = [one.delta for one in events if one.type == "response.output_text.delta"]
    assert "".join(deltas) == response.output_text != ""
    yield "responses"
    assert asyncio.run(_asynchronously(url, asked)) == text
    yield "async"
    if tool is None:
        return
    yield from _parsed(client, asked)
    tools: Any = {**asked, "max_tokens": LENGTH, "tools": [tool]}
    _check_call(client.chat.completions.create(**tools, tool_choice=NAMED))
    _check_streamed_call(client.chat.completions.create(**tools, tool_choice=NAMED, stream=True))
    yield "tools"


def _check_call(answer: Any) -> None:
    """Check that an answer is the call that was forced, and nothing else."""
    (choice,) = answer.choices
    (call,) = choice.message.tool_calls
    assert call.function.name == "parity"
    assert not choice.message.content
    _check_arguments(call.function.arguments, choice.finish_reason)


def _check_streamed_call(chunks: Any) -> None:
    """Check that a stream is such a call, whose arguments come in pieces."""
    choices = [one.choices[0] for one in chunks]
    functions = [call.function for one in choices for call in one.delta.tool_calls or ()]
    assert [one.name for one in functions if one.name] == ["parity"]
    pieces = [one.arguments for one in functions if one.arguments]
    assert len(pieces) > 1
    _check_arguments("".join(pieces), choices[-1].finish_reason)


def _check_arguments(text: str, reason: str) -> None:
    """Check what is given to a tool, unless it is cut off by the length of the answer."""
    assert reason == "length" or type(json.loads(text)["odd"]) is bool


def _parsed(client: Any, asked: Any) -> Iterator[str]:
    from pydantic import RootModel

    class Kind(RootModel[bool]):
        pass

    answer = client.beta.chat.completions.parse(**asked, response_format=Kind)
    assert answer.choices[0].message.parsed in (Kind(True), Kind(False))
    yield "parse"


async def _asynchronously(url: str, asked: Any) -> str:
    import openai

    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        chunks = await client.chat.completions.create(**asked, stream=True)
        return "".join([one.choices[0].delta.content or "" async for one in chunks])


def litellm(url: str, model: str, tool: Any) -> Iterator[str]:
    """LiteLLM, whose provider `openai` asks any server that speaks the API."""
    from litellm import acompletion, completion

    asked: Any = {
        "model": f"openai/{model}",
        "api_base": url,
        "api_key": "none",
        "messages": MESSAGES,
        "temperature": 0,
        "max_tokens": 16,
    }
    text = completion(**asked).choices[0].message.content
    assert text
    streamed = [one.choices[0].delta.content or "" for one in completion(**asked, stream=True)]
    assert "".join(streamed) == text
    yield "chat"
    assert asyncio.run(acompletion(**asked)).choices[0].message.content == text
    yield "async"
    if tool is None:
        return
    called = completion(**{**asked, "max_tokens": LENGTH}, tools=[tool], tool_choice=NAMED)
    _check_call(called)
    yield "tools"


def langchain(url: str, model: str, tool: Any) -> Iterator[str]:
    """LangChain's `ChatOpenAI`."""
    from langchain_core.messages import ToolMessage
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(
        model=model, base_url=url, api_key="none", temperature=0, max_tokens=16, max_retries=0
    )
    answer = chat.invoke("How do I open a file?")
    assert answer.content
    assert answer.usage_metadata["output_tokens"]
    streamed = [chunk.content for chunk in chat.stream("How do I open a file?")]
    assert "".join(streamed) == answer.content
    yield "chat"
    assert asyncio.run(chat.ainvoke("How do I open a file?")).content == answer.content
    yield "async"
    if tool is None:
        return
    tools = chat.bind_tools([tool], tool_choice="parity", max_tokens=LENGTH)
    called = tools.invoke("Is 7 odd?")
    (call,) = called.tool_calls or called.invalid_tool_calls  # of arguments without an end
    assert call["name"] == "parity"
    result = ToolMessage("yes", tool_call_id=call["id"])
    assert chat.invoke([("user", "Is 7 odd?"), called, result]).content
    yield "tools"


CLIENTS: Final[dict[str, Callable[[str, str, Any], Iterator[str]]]] = {
    "openai": openai_client,
    "litellm": litellm,
    "langchain": langchain,
}


def main(url: str, model: str, names: Sequence[str], tool: Any) -> None:
    """Ask a server's model by these clients, or by all."""
    for name in names or CLIENTS:
        for thing in CLIENTS[name](url, model, tool):
            print(f"ok {name}: {thing}", flush=True)


if __name__ == "__main__":
    given = [one for one in sys.argv[1:] if not one.startswith("--")]
    tool = parity_tool(CONSTANTS if "--constants" in sys.argv else PARITY)
    main(given[0], given[1], given[2:], None if "--without-tools" in sys.argv else tool)
