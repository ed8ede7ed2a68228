"""`Talker`: a backend with an ASGI application, which does what the path of a request says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from penstock.core.backend import Backend, InstanceContext, Outcome, WithApplication
from penstock.core.errors import UnavailableError
from penstock.core.http_exchange import ASGI_EXTENSION, AsgiApp, Message
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import Tensor

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class Talker(WithApplication, Backend):
    """`sent` counts pieces of bodies; `left` and `cancelled` what became of clients that left.

    With the setting `app` at `none` or `broken`, it has no application.
    """

    def __init__(self) -> None:
        self.report: dict[str, int] = {"sent": 0, "left": 0, "cancelled": 0}

    async def initialize(self, context: InstanceContext) -> None:
        self._app = context.settings.get("app", "")

    async def openai_app(self) -> AsgiApp | None:
        if self._app == "broken":
            raise UnavailableError("its kit does not fit")
        return None if self._app == "none" else self._answer

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        return [InferenceResponse(one.inputs) for one in requests]

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        await getattr(self, scope["path"].strip("/"))(scope, receive, send)

    async def echo(self, scope: Message, receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        headers = [[name.decode(), value.decode()] for name, value in scope["headers"]]
        known = scope["extensions"][ASGI_EXTENSION]["request"]
        told = [scope["method"], scope["query_string"].decode(), headers, body.decode(), known.id]
        await _whole(send, 200, json.dumps(told).encode())

    async def state(self, scope: Message, receive: Receive, send: Send) -> None:
        await _whole(send, 200, json.dumps(self.report).encode())

    async def refuse(self, scope: Message, receive: Receive, send: Send) -> None:
        await _whole(send, 400, b'{"error": {}}')

    async def large(self, scope: Message, receive: Receive, send: Send) -> None:
        await _whole(send, 200, bytes(int(scope["query_string"])))

    async def heavy(self, scope: Message, receive: Receive, send: Send) -> None:
        """Headers of as many bytes as the query says."""
        headers = [(b"x-long", b"x" * int(scope["query_string"]))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    async def usage(self, scope: Message, receive: Receive, send: Send) -> None:
        report = scope["extensions"][ASGI_EXTENSION]["request"].scope.report_usage
        report(7, 2, 3)
        await _whole(send, 200, b"{}")

    async def infer(self, scope: Message, receive: Receive, send: Send) -> None:
        infer = scope["extensions"][ASGI_EXTENSION]["infer"]
        tensor = Tensor.from_numpy(np.array([[4, 2]], np.int32))
        (response,) = [one async for one in infer(InferenceRequest("m", inputs={"IN": tensor}))]
        await _whole(send, 200, json.dumps(response.outputs["IN"].numpy().tolist()).encode())

    async def count(self, scope: Message, receive: Receive, send: Send) -> None:
        """Pieces of 1,000 bytes, as many as the query says."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(int(scope["query_string"])):
            await send({"type": "http.response.body", "body": bytes(1000), "more_body": True})
            self.report["sent"] += 1
        await send({"type": "http.response.body"})

    async def wait(self, scope: Message, receive: Receive, send: Send) -> None:
        """A first piece, then nothing until the client leaves."""
        await receive()
        await _begin(send)
        message = await receive()
        self.report["left"] += message["type"] == "http.disconnect"

    async def stubborn(self, scope: Message, receive: Receive, send: Send) -> None:
        await _begin(send)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.report["cancelled"] += 1
            raise

    async def fail(self, scope: Message, receive: Receive, send: Send) -> None:
        raise KeyError("lost")

    async def stop(self, scope: Message, receive: Receive, send: Send) -> None:
        await _begin(send)


async def _whole(send: Send, status: int, body: bytes) -> None:
    headers: list[Any] = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _begin(send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"first", "more_body": True})
