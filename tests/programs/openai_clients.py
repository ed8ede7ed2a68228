"""Clients of OpenAI's API, each asked for what people use it for; prints a line for each thing.

    python tests/programs/openai_clients.py http://localhost:8000/v1 MODEL [CLIENT ...]

The clients are `openai`, `litellm` and `langchain`; without a name, all are asked. LiteLLM and
LangChain take older releases of the package `openai` than the tests do, so they are in an
environment of their own (`make tools`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

MESSAGES: Final[Any] = [{"role": "user", "content": "How do I open a file?"}]
TOOL: Final[Any] = {
    "type": "function",
    "function": {
        "name": "parity",
        "description": "Whether a number is odd.",
        "strict": True,  # without it vLLM leaves the form of arguments to the model
        "parameters": {
            "type": "object",
            "properties": {"odd": {"type": "boolean"}},
            "required": ["odd"],
            "additionalProperties": False,
        },
    },
}
NAMED: Final[Any] = {"type": "function", "function": {"name": "parity"}}
"""The choice of that tool: a model of the tests would not choose it."""

LENGTH: Final = 300


def openai_client(url: str, model: str) -> Iterator[str]:
    """The official client, in both forms."""
    import openai

    asked: Any = {"model": model, "messages": MESSAGES, "temperature": 0, "max_tokens": 16}
    client: Any = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60)
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
    yield from _parsed(client, asked)
    called = client.chat.completions.create(
        **{**asked, "max_tokens": LENGTH}, tools=[TOOL], tool_choice=NAMED
    )
    _check_call(called)
    yield "tools"
    assert asyncio.run(_asynchronously(url, asked)) == text
    yield "async"


def _check_call(answer: Any) -> None:
    """Check that an answer is the call that was forced.

    The models of tests put white space without end into it, and what is half a call is content to
    vLLM.
    """
    message = answer.choices[0].message
    called = [call.function.name for call in message.tool_calls or ()]
    assert called == ["parity"] or '"name": "parity"' in message.content


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


def litellm(url: str, model: str) -> Iterator[str]:
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
    called = completion(**{**asked, "max_tokens": LENGTH}, tools=[TOOL], tool_choice=NAMED)
    _check_call(called)
    yield "tools"


def langchain(url: str, model: str) -> Iterator[str]:
    """LangChain's `ChatOpenAI`."""
    from langchain_core.messages import ToolMessage
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(
        model=model, base_url=url, api_key="none", temperature=0, max_tokens=LENGTH, max_retries=0
    )
    answer = chat.invoke("How do I open a file?")
    assert answer.content
    assert answer.usage_metadata["output_tokens"]
    streamed = [chunk.content for chunk in chat.stream("How do I open a file?")]
    assert "".join(streamed) == answer.content
    yield "chat"
    tools = chat.bind_tools([TOOL], tool_choice="parity")
    called = tools.invoke("Is 7 odd?")
    calls = called.tool_calls or called.invalid_tool_calls  # of arguments without an end
    assert [call["name"] for call in calls] == ["parity"] or "parity" in called.content
    result = ToolMessage("yes", tool_call_id=calls[0]["id"] if calls else "1")
    assert chat.invoke([("user", "Is 7 odd?"), called, result]).content
    yield "tools"
    assert asyncio.run(chat.ainvoke("How do I open a file?")).content == answer.content
    yield "async"


CLIENTS: Final[dict[str, Callable[[str, str], Iterator[str]]]] = {
    "openai": openai_client,
    "litellm": litellm,
    "langchain": langchain,
}


def main(url: str, model: str, names: Sequence[str]) -> None:
    """Ask a server's model by these clients, or by all."""
    for name in names or CLIENTS:
        for thing in CLIENTS[name](url, model):
            print(f"ok {name}: {thing}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
