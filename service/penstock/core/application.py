"""`BackendApplication`: exchanges over HTTP with the ASGI application of a backend."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from functools import partial
from typing import Any
from urllib.parse import unquote

from penstock.core.backend import Backend, WithApplication, WithEngineFacts
from penstock.core.delivery import deliver, execute_batch
from penstock.core.errors import (
    BackendNotInstalledError,
    InferenceError,
    InternalError,
    InvalidRequestError,
    ModelLoadError,
    UnavailableError,
    UnsupportedError,
    as_inference_error,
)
from penstock.core.flow_control import Window
from penstock.core.http_exchange import (
    ASGI_DESCRIPTION,
    ASGI_EXTENSION,
    LARGEST_PIECE,
    AsgiApp,
    Headers,
    HttpExchange,
    HttpHead,
    Message,
)
from penstock.core.log.log_throttle import log_fault
from penstock.core.request import ExchangePart, InferenceRequest
from penstock.core.stream import ResponseStream

logger = logging.getLogger(__name__)

_GRACE = 1.0
"""Seconds in which an application ends by itself once its client has left."""

_ONE = Window(responses=1)
"""What the reader has no room for stays with the application, which waits."""

_DESCRIPTION = HttpExchange("GET", ASGI_DESCRIPTION)

DESCRIBE = "describe-openai"
"""The server's command for the description of a model's application."""

SPEAKS = "speaks-openai"
"""The server's command that asks whether a model has an application."""

_DISCONNECT: Message = {"type": "http.disconnect"}
_FAILED = 400


OpenApplication = Callable[[], Awaitable[AsgiApp | None]]


class BackendApplication:
    """The application of one backend, or the reason why there is none.

    Without a `backend`, `open_application` makes it, and exchanges bring their own `infer`.
    """

    def __init__(
        self, backend: Backend | None, model: str, open_application: OpenApplication | None = None
    ) -> None:
        if open_application is None:
            open_application = _no_application
            if backend is not None and isinstance(backend, WithApplication):
                open_application = backend.openai_app
        self._backend = backend
        self._open = open_application
        self._model = model
        self._app: AsgiApp | None = None
        self._refusal: InferenceError = InvalidRequestError(
            f"model '{model}' has no OpenAI routes: they are for language models, text encoders and"
            " models from 'text_input' to 'text_output'"
        )
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Ask the backend for its application; a failure is logged, and told to clients.

        Raises `ModelLoadError` where what the model says of it is wrong.
        """
        try:
            self._app = await self._open()
        except Exception as error:  # a backend may raise anything
            if isinstance(error, ModelLoadError) and not isinstance(
                error, BackendNotInstalledError
            ):
                raise
            text = f"OpenAI routes of '{self._model}' are off: {as_inference_error(error).message}"
            self._refusal = UnsupportedError(text)
            logger.warning(text, exc_info=None if isinstance(error, InferenceError) else error)

    @property
    def opened(self) -> bool:
        """Whether there is an application."""
        return self._app is not None

    def answer(self, request: InferenceRequest) -> ResponseStream:
        """The parts of the answer to a request with an exchange."""
        stream = ResponseStream(window=_ONE)
        if self._app is None or request.exchange is None:
            stream.fail(self._refusal)
            return stream
        infer = request.scope.infer
        if infer is None and self._backend is not None:
            infer = partial(_infer, self._backend, self._own)
        known = {"request": request, "infer": infer}
        self._own(_Answering(stream, request.exchange, known).start(self._app))
        return stream

    async def description(self) -> dict[str, Any]:
        """The application's own OpenAPI document; empty where it has none."""
        stream = self.answer(InferenceRequest(self._model, exchange=_DESCRIPTION))
        try:
            parts = [part async for part in stream if isinstance(part, ExchangePart)]
            told = json.loads(b"".join(part.body for part in parts))
        except (InferenceError, ValueError):
            return {}
        finally:
            stream.close()  # also where the wait for it was cancelled
        head = parts[0].head
        well = head is not None and head.status < _FAILED and isinstance(told, dict)
        return told if well else {}

    async def close(self) -> None:
        """End what is running, since the backend is about to be finalized."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _own(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def told_facts(backend: object) -> dict[str, Any]:
    """The facts of a backend's engine, as values that JSON has; empty where it has none."""
    facts = backend.engine_facts() if isinstance(backend, WithEngineFacts) else None
    return {} if facts is None else asdict(facts)


async def _no_application() -> AsgiApp | None:
    return None


class _Answering:
    """One call of an application."""

    def __init__(
        self, stream: ResponseStream, exchange: HttpExchange, known: dict[str, Any]
    ) -> None:
        self._stream = stream
        self._exchange = exchange
        self._known = known
        self._left = asyncio.Event()
        self._body_read = False
        self._status = 0
        self._task: asyncio.Task[None] | None = None

    def start(self, app: AsgiApp) -> asyncio.Task[None]:
        """Call the application in a task."""
        self._stream.connect(self._on_left)
        self._task = asyncio.get_running_loop().create_task(self._run(app))
        self._task.add_done_callback(self._on_ended)
        return self._task

    def _on_left(self) -> None:
        """The client has left: tell the application, and end it where that does not."""
        self._left.set()
        asyncio.get_running_loop().call_later(_GRACE, self._cancel)

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        self._left.set()
        if task.cancelled():
            self._stream.fail(UnavailableError("the model's application was stopped"))
        else:
            self._stream.fail(InternalError("the model's application ended before its answer"))

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self, app: AsgiApp) -> None:
        stream = self._stream
        try:
            await app(_scope(self._exchange, self._known), self._receive, self._send)
        except Exception as error:  # an application may raise anything
            if not (stream.ended or isinstance(error, InferenceError)):
                log_fault(logger, error, "an exchange with the model's application failed")
            stream.fail(as_inference_error(error))

    async def _receive(self) -> Message:
        if not self._body_read:
            self._body_read = True
            return {"type": "http.request", "body": self._exchange.body, "more_body": False}
        await self._left.wait()
        return dict(_DISCONNECT)

    async def _send(self, message: Message) -> None:
        stream = self._stream
        if stream.ended:
            return
        if message["type"] == "http.response.start":
            self._status = int(message["status"])
            head = HttpHead(self._status, _texts(message.get("headers", ())))
            stream.send(ExchangePart(head=head))
        elif message["type"] == "http.response.body":
            body = bytes(message.get("body", b""))
            final = not message.get("more_body", False)
            await self._send_body(body, final=final)

    async def _send_body(self, body: bytes, *, final: bool) -> None:
        stream = self._stream
        at = 0
        while len(body) - at > LARGEST_PIECE:
            stream.send(ExchangePart(body=body[at : at + LARGEST_PIECE]))
            at += LARGEST_PIECE
            if stream.full:
                await stream.room()
        piece = body[at:] if at else body
        if final:
            stream.send(ExchangePart(final=True, error=self._problem(), body=piece))
            self._left.set()
        elif piece:
            stream.send(ExchangePart(body=piece))
        if stream.full:
            await stream.room()

    def _problem(self) -> InferenceError | None:
        """The failure that the answer tells the client of, for the statistics."""
        if self._status < _FAILED:
            return None
        kind = InternalError if self._status >= 500 else InvalidRequestError
        return kind(f"the model's application answered with status {self._status}")


def _scope(exchange: HttpExchange, known: dict[str, Any]) -> Message:
    headers = [
        (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in exchange.headers
    ]
    return {
        "type": "http",
        # By this version, an application learns from `receive` that its client has left.
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": exchange.method,
        "scheme": "http",
        "path": unquote(exchange.path),
        "raw_path": exchange.path.encode("utf-8", "surrogateescape"),
        "query_string": exchange.query.encode("latin-1", "replace"),
        "root_path": "",
        "headers": headers,
        "client": None,
        "server": None,
        "state": {},
        "extensions": {ASGI_EXTENSION: known},
    }


def _texts(headers: Any) -> Headers:
    """The headers of an answer, with names in small letters also where those of ASGI's are not."""
    return tuple(
        (bytes(name).decode("latin-1").lower(), bytes(value).decode("latin-1"))
        for name, value in headers
    )


def _infer(
    backend: Backend, own: Callable[[asyncio.Task[None]], None], request: InferenceRequest
) -> ResponseStream:
    """Give the backend a request, past the server."""
    stream = ResponseStream()

    async def execute() -> None:
        (outcome,) = await execute_batch(backend, [request], request.model_name)
        relaying: Awaitable[None] | None = deliver(outcome, stream)
        if relaying is not None:
            await relaying

    own(asyncio.get_running_loop().create_task(execute()))
    return stream
