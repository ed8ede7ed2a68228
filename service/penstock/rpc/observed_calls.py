"""Observation of calls on any transport: what is received, what is sent, and how each call ends.

The log of calls is made of it (`rpc.verbose`, `rpc.accesses`). While the switch of an observer is
off, a call costs one look at it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from google.protobuf.message import DecodeError

from penstock.core.buffer import Buffer
from penstock.core.errors import InternalError, InvalidRequestError
from penstock.core.log.verbosity import Verbosity
from penstock.core.turns import Sliced, Steps
from penstock.rpc.context import (
    CompletionCallbacks,
    Handler,
    Metadata,
    Method,
    Reply,
    RpcContext,
    Service,
    Starter,
)


class ObservedCall(Protocol):
    """The observer of one call. `ended` is called once, after all others."""

    def received(self, message: Any) -> None:
        """A request message was read."""

    def sent(self, reply: Reply) -> None:
        """A response message was handed to the transport."""

    def ended(self, error: BaseException | None) -> None:
        """The call ended, with the error that its handler raised; cancellation is one too."""


class Observer(Protocol):
    """Observes calls from their first message on, or streams from their beginning."""

    @property
    def switch(self) -> Verbosity:
        """Calls that begin while its level is 0 are not observed."""

    def parsed(self, size: int) -> None:
        """A request message of so many bytes was parsed; `received` follows at once."""

    def begin(self, method: Method, context: RpcContext) -> ObservedCall: ...


def observed(services: Iterable[Service], observer: Observer, *, sizes: bool) -> list[Service]:
    """The services, with calls of their methods observed; with the sizes of messages if asked."""
    return [
        replace(service, methods=[_observed(method, observer, sizes) for method in service.methods])
        for service in services
    ]


def _observed(method: Method, observer: Observer, sizes: bool) -> Method:
    handler = _stream_handler if method.client_streaming else _unary_handler
    return replace(
        method,
        handler=handler(method, observer),
        start=None if method.start is None else _starter(method, method.start, observer),
        parse=_sized(method, observer) if sizes else method.parse,
    )


class _Unparsed:
    """Stands for a message that cannot be parsed, so that its call is observed too."""

    def __init__(self, error: DecodeError | InvalidRequestError) -> None:
        self.error = error


def _sized(method: Method, observer: Observer) -> Callable[[Buffer], Any]:
    parse = method.parse or method.request.FromString

    def parse_sized(data: Buffer) -> Any:
        size = len(data)
        try:
            message = parse(data)
        except (DecodeError, InvalidRequestError) as error:
            message = _Unparsed(error)
        if isinstance(message, Sliced):
            return message.within(partial(steps_sized, size))
        observer.parsed(size)
        return message

    def steps_sized(size: int, steps: Steps[Any]) -> Steps[Any]:
        try:
            message = yield from steps
        except (DecodeError, InvalidRequestError) as error:
            message = _Unparsed(error)
        observer.parsed(size)
        return message

    return parse_sized


def _check(message: Any) -> None:
    if not isinstance(message, _Unparsed):
        return
    if isinstance(message.error, InvalidRequestError):
        raise message.error
    raise InternalError("Unable to parse request") from message.error


# -- calls with one request ----------------------------------------------------------------------


def _starter(method: Method, inner: Starter, observer: Observer) -> Starter:
    switch = observer.switch

    def start(
        message: Any, context: RpcContext, callbacks: CompletionCallbacks
    ) -> Callable[[], None] | None:
        if not switch.level:
            return inner(message, context, callbacks)
        call = observer.begin(method, context)
        call.received(message)
        try:
            _check(message)
            cancel = inner(message, context, _ObservedCallbacks(callbacks, call))
        except BaseException as error:
            call.ended(error)
            raise
        return None if cancel is None else _cancelling(cancel, call)

    return start


def _cancelling(cancel: Callable[[], None], call: ObservedCall) -> Callable[[], None]:
    def cancel_observed() -> None:
        cancel()
        call.ended(asyncio.CancelledError())

    return cancel_observed


class _ObservedCallbacks:
    """Completion callbacks of an observed call."""

    def __init__(self, callbacks: CompletionCallbacks, call: ObservedCall) -> None:
        self._callbacks = callbacks
        self._call = call

    def returned(self, response: Reply | None) -> None:
        self._callbacks.returned(response)
        if response is not None:
            self._call.sent(response)
        self._call.ended(None)

    def raised(self, error: BaseException) -> None:
        self._callbacks.raised(error)
        self._call.ended(error)


def _unary_handler(method: Method, observer: Observer) -> Handler:
    inner, switch = method.handler, observer.switch

    def handler(message: Any, context: RpcContext) -> Awaitable[Reply | None]:
        if not switch.level:
            return inner(message, context)
        call = observer.begin(method, context)
        call.received(message)
        return _run(inner, message, context, call)

    return handler


async def _run(
    inner: Handler, message: Any, context: RpcContext, call: ObservedCall
) -> Reply | None:
    try:
        _check(message)
        reply = await inner(message, context)
    except BaseException as error:
        call.ended(error)
        raise
    if reply is not None:
        call.sent(reply)
    call.ended(None)
    return reply


# -- streams -------------------------------------------------------------------------------------


def _stream_handler(method: Method, observer: Observer) -> Handler:
    inner, switch = method.handler, observer.switch

    def handler(messages: Any, context: RpcContext) -> Awaitable[Reply | None]:
        if not switch.level:
            return inner(messages, context)
        call = observer.begin(method, context)
        return _run(inner, _ObservedMessages(messages, call), _ObservedContext(context, call), call)

    return handler


class _ObservedMessages:
    """The iterator of a stream's requests."""

    def __init__(self, messages: AsyncIterator[Any], call: ObservedCall) -> None:
        self._messages = messages
        self._call = call

    def __aiter__(self) -> _ObservedMessages:
        return self

    async def __anext__(self) -> Any:
        message = await self._messages.__anext__()
        self._call.received(message)
        _check(message)
        return message


class _ObservedContext:
    """The context of a stream, whose responses are observed."""

    def __init__(self, context: RpcContext, call: ObservedCall) -> None:
        self._context = context
        self._call = call

    @property
    def writes_at_once(self) -> bool:
        return self._context.writes_at_once

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._context.metadata

    @property
    def metadata_fields(self) -> Metadata:
        return self._context.metadata_fields

    @property
    def deadline(self) -> float | None:
        return self._context.deadline

    @property
    def opened(self) -> int:
        return self._context.opened

    @property
    def peer(self) -> str:
        return self._context.peer

    @property
    def request_compressed(self) -> bool | None:
        return self._context.request_compressed

    @property
    def trace_id(self) -> int:
        return self._context.trace_id

    @trace_id.setter
    def trace_id(self, trace_id: int) -> None:
        self._context.trace_id = trace_id

    def set_initial_metadata(self, metadata: Metadata) -> None:
        self._context.set_initial_metadata(metadata)

    def add_trailing_metadata(self, metadata: Metadata) -> None:
        self._context.add_trailing_metadata(metadata)

    def compress_responses(self, wanted: bool) -> None:
        self._context.compress_responses(wanted)

    async def write(self, message: Reply) -> None:
        self._call.sent(message)
        await self._context.write(message)

    def write_nowait(self, message: Reply) -> bool:
        self._call.sent(message)
        return self._context.write_nowait(message)

    async def writable(self) -> None:
        await self._context.writable()
