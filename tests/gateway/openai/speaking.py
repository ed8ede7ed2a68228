"""`Speaker`: a backend whose application does what the member `do` of a request says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import httpx

from fakes import InstallBackend, write_model
from gateway.serving import LOCAL, serving
from penstock.core.backend import Backend, Controllable, InstanceContext, Outcome, WithApplication
from penstock.core.errors import BackendNotInstalledError, ExhaustedError, InternalError
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.http_exchange import ASGI_EXTENSION, AsgiApp, Message
from penstock.core.request import InferenceRequest
from penstock.gateway.app import open_gateway
from penstock.server.server import InferenceServer
from penstock.settings import HttpSettings, OpenAiSettings

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

OPENAI = OpenAiSettings()
CHAT = "/v1/chat/completions"


class Speaker(Controllable, WithApplication, Backend):
    """`requests` are what its application got; `left` is set when a client has left.

    `flooded` counts the bytes of answers of `flood` and `pour` that it could send.
    """

    requests: ClassVar[list[InferenceRequest]]
    left: ClassVar[asyncio.Event]
    go_on: ClassVar[asyncio.Event]
    flooded: ClassVar[int]

    async def initialize(self, context: InstanceContext) -> None:
        self._model = context.config.name

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        return [InternalError("this model only talks") for _ in requests]

    async def control(self, action: str, arguments: Mapping[str, Any]) -> Any:
        return {"adapters": [{"name": "loud"}]}

    async def openai_app(self) -> AsgiApp | None:
        if self._model == "missing":
            raise BackendNotInstalledError("pip install 'penstock[openai]'")
        return None if self._model == "mute" else self._answer

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        body = (await receive())["body"]
        self.requests.append(scope["extensions"][ASGI_EXTENSION]["request"])
        do = json.loads(body).get("do", "whole") if body[:1] == b"{" else "whole"
        await getattr(self, do)(receive, send)

    async def whole(self, receive: Receive, send: Send) -> None:
        await _begin(send, 200, b"application/json")
        await send({"type": "http.response.body", "body": b'{"object":"chat.completion"}'})

    async def large(self, receive: Receive, send: Send) -> None:
        """More than one window of the way here, and no stream of events."""
        await _begin(send, 200, b"application/json")
        for _ in range(50):
            body = {"type": "http.response.body", "body": b" " * 10_000, "more_body": True}
            await send(body)
        await send({"type": "http.response.body"})

    async def counting(self, receive: Receive, send: Send) -> None:
        """One body that is longer than its way here holds, no two parts of which are alike."""
        await _begin(send, 200, b"application/json")
        await send({"type": "http.response.body", "body": json.dumps([*range(20_000)]).encode()})

    async def noted(self, receive: Receive, send: Send) -> None:
        """A generation, of which an engine tells its times."""
        timeline = self.requests[-1].scope.timeline
        assert timeline is not None
        timeline.facts["gen_ai.usage.output_tokens"] = 7
        timeline.facts["penstock.llm.time_to_first_token_ms"] = 1.5
        await self.whole(receive, send)

    async def at_once(self, receive: Receive, send: Send) -> None:
        """A stream of events that is there as a whole."""
        await _begin(send, 200, b"text/event-stream")
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def wait(self, receive: Receive, send: Send) -> None:
        """Nothing, until the client has left or its time is over."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()

    async def refuse(self, receive: Receive, send: Send) -> None:
        await _begin(send, 422, b"application/json")
        await send({"type": "http.response.body", "body": b'{"error":{"message":"no"}}'})

    async def busy(self, receive: Receive, send: Send) -> None:
        """As vLLM tells of its full queue."""
        await _begin(send, 503, b"application/json")
        await send({"type": "http.response.body", "body": b'{"error":{"message":"busy"}}'})

    async def split(self, receive: Receive, send: Send) -> None:
        """A header that would be two."""
        headers = [(b"content-type", b"text/event-stream"), (b"x-own", b"1\r\nx-other: 2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def headless(self, receive: Receive, send: Send) -> None:
        """A body that nothing comes before."""
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        await send({"type": "http.response.body"})

    async def empty(self, receive: Receive, send: Send) -> None:
        """An end that nothing comes before."""
        await send({"type": "http.response.body"})

    async def full(self, receive: Receive, send: Send) -> None:
        raise ExhaustedError("the queue is full", retry_after=7)

    async def stream(self, receive: Receive, send: Send) -> None:
        """An event, and the end once `go_on` is set."""
        await _begin(send, 200, b"text/event-stream; charset=utf-8")
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        await self.go_on.wait()
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def flood(self, receive: Receive, send: Send, events: int = 3000) -> None:
        await _begin(send, 200, b"text/event-stream")
        for number in range(events):
            event = b"data: %06d%b\n\n" % (number, bytes(986))
            await send({"type": "http.response.body", "body": event, "more_body": True})
            type(self).flooded += len(event)
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def pour(self, receive: Receive, send: Send) -> None:
        """More than the buffers of any socket hold."""
        await self.flood(receive, send, 30_000)

    async def hang(self, receive: Receive, send: Send) -> None:
        await _begin(send, 200, b"text/event-stream")
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.set()

    async def break_off(self, receive: Receive, send: Send) -> None:
        await _begin(send, 200, b"text/event-stream")
        await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
        raise InternalError("the engine has died")


async def _begin(send: Send, status: int, content_type: bytes) -> None:
    headers = [(b"content-type", content_type), (b"x-own", b"1")]
    await send({"type": "http.response.start", "status": status, "headers": headers})


@asynccontextmanager
async def speaking(
    folder: Path,
    install: InstallBackend,
    openai: OpenAiSettings = OPENAI,
    http: HttpSettings = LOCAL,
    *models: str,
    **options: Any,
) -> AsyncIterator[tuple[InferenceServer, httpx.AsyncClient]]:
    """A server with the model `m`, and further ones, and a client of its HTTP port."""
    Speaker.requests, Speaker.flooded = [], 0
    Speaker.left, Speaker.go_on = asyncio.Event(), asyncio.Event()
    install("fake", Speaker)
    repository = folder / "models"
    repository.mkdir()
    names = ("m", *models)
    for name in names:
        write_model(repository, name)
    async with (
        serving(repository, names, **options) as server,
        open_gateway(server, http, ExitDeadline(2), openai=openai) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20, verify=False) as client,
    ):
        yield server, client
