"""Clients that leave: what a model hears of it, whole or streamed, before and after it began."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from backends.generation import until
from backends.openai_kit.scripted import HELLO, Script, ScriptedModel
from penstock.core.errors import InvalidRequestError


class Client:
    """A client of an ASGI application that reads `reads` messages and then leaves, if asked."""

    def __init__(self, body: Any, reads: int = 1 << 30) -> None:
        self._body = [json.dumps(body).encode()]
        self._reads = reads
        self.left = asyncio.Event()
        self.sent: list[Any] = []

    async def receive(self) -> Any:
        if self._body:
            return {"type": "http.request", "body": self._body.pop()}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if len(self.sent) >= self._reads:
            await asyncio.Event().wait()  # as a connection that is not read


def scope(path: str) -> Any:
    return {"type": "http", "method": "POST", "path": path, "headers": []}


@pytest.mark.parametrize("reads", [1, 2, 1 << 30])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": HELLO}),
        ("/v1/completions", {"prompt": ["a", "b"]}),
        ("/v1/responses", {"input": "a"}),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_what_the_model_does(
    path: str, body: Any, stream: bool, reads: int
) -> None:
    model = ScriptedModel(Script(endless=True))
    client = Client({"model": "m", "stream": stream, **body}, reads)
    serving = asyncio.ensure_future(model.app()(scope(path), client.receive, client.send))
    await until(lambda: bool(model.steps))
    if stream:
        await until(lambda: len(client.sent) >= min(reads, 2))
    client.left.set()
    await asyncio.wait_for(serving, 20)
    assert all(steps.closed for steps in model.steps)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_an_echo_ends_what_the_model_does(stream: bool) -> None:
    model = ScriptedModel(Script(endless=True))
    client = Client({"model": "m", "stream": stream, "prompt": "a", "echo": True, "max_tokens": 0})
    app = model.app()
    serving = asyncio.ensure_future(app(scope("/v1/completions"), client.receive, client.send))
    await until(lambda: bool(model.steps))
    client.left.set()
    await asyncio.wait_for(serving, 20)
    assert model.steps[0].closed


async def test_an_application_that_is_cancelled_ends_what_the_model_does() -> None:
    model = ScriptedModel(Script(endless=True))
    client = Client({"model": "m", "stream": True, "messages": HELLO}, reads=1)
    app = model.app()
    serving = asyncio.ensure_future(app(scope("/v1/chat/completions"), client.receive, client.send))
    await until(lambda: len(client.sent) == 1)  # the events are not begun
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
    assert model.steps[0].closed


async def test_a_prompt_that_is_refused_takes_those_before_it_along() -> None:
    class SecondRefused(ScriptedModel):
        def generate(self, generation: Any) -> Any:
            if self.steps:
                raise InvalidRequestError("no")
            return super().generate(generation)

    model = SecondRefused()
    client = Client({"model": "m", "prompt": ["a", "b"]})
    await model.app()(scope("/v1/completions"), client.receive, client.send)
    assert client.sent[0]["status"] == 400
    assert model.steps[0].closed


async def test_a_client_that_leaves_before_its_body_is_there_is_forgotten() -> None:
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    client = Client({})
    await ScriptedModel().app()(scope("/v1/completions"), receive, client.send)
    assert not client.sent
