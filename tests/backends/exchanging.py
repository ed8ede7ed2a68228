"""Exchanges over HTTP with the application of a backend, as a server has them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from penstock.core.application import BackendApplication
from penstock.core.backend import Backend
from penstock.core.http_exchange import HttpExchange
from penstock.core.request import ExchangePart, InferenceRequest, Parameters, RequestScope
from penstock.core.stream import ResponseStream


@asynccontextmanager
async def application(backend: Backend, model: str = "m") -> AsyncIterator[BackendApplication]:
    """The started application of a backend."""
    application = BackendApplication(backend, model)
    await application.start()
    try:
        yield application
    finally:
        await application.close()


def begin(
    application: BackendApplication,
    path: str,
    body: Any,
    parameters: Parameters | None = None,
    **known: Any,
) -> ResponseStream:
    """An exchange that is under way; `known` are fields of its request's scope."""
    headers = (("content-type", "application/json"),)
    exchange = HttpExchange("POST", path, headers=headers, body=json.dumps(body).encode())
    scope = RequestScope(**known)
    request = InferenceRequest("m", parameters=parameters or {}, exchange=exchange, scope=scope)
    return application.answer(request)


async def whole(stream: ResponseStream) -> tuple[int, str]:
    """The status and the body of an answer."""
    parts = [part async for part in stream if isinstance(part, ExchangePart)]
    assert parts[0].head is not None
    return parts[0].head.status, b"".join(part.body for part in parts).decode()
