"""`BackendApplication`: what an application is told, and when it is told to end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.core.application import BackendApplication
from penstock.core.http_exchange import AsgiApp, HttpExchange, HttpHead, Message
from penstock.core.request import ExchangePart, InferenceRequest

Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


async def _started(app: AsgiApp) -> BackendApplication:
    async def made() -> AsgiApp:
        return app

    application = BackendApplication(None, "m", made)
    await application.start()
    return application


async def test_path_is_decoded_and_kept_as_sent() -> None:
    scopes: list[Message] = []

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        scopes.append(scope)
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body"})

    application = await _started(app)
    exchange = HttpExchange("GET", "/v1/responses/a%20b\udcff")
    assert [part async for part in application.answer(InferenceRequest("m", exchange=exchange))]
    assert scopes[0]["path"] == "/v1/responses/a b\udcff"
    assert scopes[0]["raw_path"] == b"/v1/responses/a%20b\xff"


async def test_who_gives_up_on_a_description_ends_its_making() -> None:
    begun, left = asyncio.Event(), asyncio.Event()

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        begun.set()
        if (await receive())["type"] == "http.disconnect":
            left.set()

    application = await _started(app)
    asking = asyncio.ensure_future(application.description())
    await begun.wait()
    asking.cancel()
    await left.wait()
    await application.close()
    assert asking.cancelled()


async def test_names_of_headers_are_in_small_letters() -> None:
    """Else the framing of the server would have a second one beside it."""

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        headers = [(b"Content-Length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    application = await _started(app)
    exchange = HttpExchange("GET", "/v1/models")
    parts = [part async for part in application.answer(InferenceRequest("m", exchange=exchange))]
    assert isinstance(parts[0], ExchangePart)
    assert parts[0].head == HttpHead(200, (("content-length", "2"),))
