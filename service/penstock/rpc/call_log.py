"""The log of calls: what is received, what is sent, and how each call ends, on any transport.

Two observers write it: the access log, and verbose lines, step by step and in Triton's words
(contract L-08). Calls that reach no method have no line: those of an unknown path, or of a
compression that is not supported. Tensors are named with their shapes, never shown.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from google.protobuf.message import DecodeError, Message

from penstock.access.policy import Permit
from penstock.core.access import Access, AccessSink
from penstock.core.buffer import Buffer
from penstock.core.errors import (
    InferenceError,
    InternalError,
    InvalidRequestError,
    request_prefix,
    shortened,
)
from penstock.core.turns import Sliced, Steps
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.context import (
    CompletionCallbacks,
    Handler,
    Metadata,
    Method,
    Reply,
    RpcContext,
    Service,
    Starter,
    StatusError,
)
from penstock.rpc.messages import InferMessage
from penstock.rpc.status import StatusCode, status_code

logger = logging.getLogger(__name__)


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
        start=None if method.start is None else _starter(method, observer),
        parse=_sized(method, observer) if sizes else method.parse,
    )


class VerboseServices:
    """Services whose calls are observed while the log is verbose, and cost nothing else.

    `follow` exchanges their handlers, for calls that begin later.
    """

    def __init__(self, services: Iterable[Service], observer: Observer) -> None:
        self._methods: list[tuple[Method, Method, Method]] = []
        self.services = [
            replace(
                service, methods=[self._switched(method, observer) for method in service.methods]
            )
            for service in services
        ]

    def _switched(self, method: Method, observer: Observer) -> Method:
        switched = replace(method)
        self._methods.append((switched, method, _observed(method, observer, sizes=False)))
        return switched

    def follow(self, level: int) -> None:
        """Observe calls at levels above 0."""
        for switched, plain, seen in self._methods:
            now = seen if level else plain
            switched.handler, switched.start = now.handler, now.start


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


def _starter(method: Method, observer: Observer) -> Starter:
    def start(
        message: Any, context: RpcContext, callbacks: CompletionCallbacks
    ) -> Callable[[], None] | None:
        call = observer.begin(method, context)
        call.received(message)
        try:
            _check(message)
            assert method.start is not None
            cancel = method.start(message, context, _ObservedCallbacks(callbacks, call))
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
    def handler(message: Any, context: RpcContext) -> Awaitable[Reply | None]:
        call = observer.begin(method, context)
        call.received(message)
        return _run(method.handler, message, context, call)

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
    def handler(messages: Any, context: RpcContext) -> Awaitable[Reply | None]:
        call = observer.begin(method, context)
        seen = _ObservedMessages(messages, call), _ObservedContext(context, call)
        return _run(method.handler, *seen, call)

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
    def authority(self) -> str:
        return self._context.authority

    @property
    def certificate(self) -> Sequence[str]:
        return self._context.certificate

    @property
    def permit(self) -> Permit | None:
        return self._context.permit

    @permit.setter
    def permit(self, permit: Permit | None) -> None:
        self._context.permit = permit

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

    async def begin(self) -> None:
        await self._context.begin()

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


class LoggedCalls:
    """An observer of calls that adds a line to the access log for each."""

    def __init__(self, log: AccessSink) -> None:
        self.log = log
        self._size = 0

    def parsed(self, size: int) -> None:
        self._size = size

    def take_size(self) -> int:
        """Bytes of the message that was parsed just now; 0 for a call of which none was."""
        size, self._size = self._size, 0
        return size

    def begin(self, method: Method, context: RpcContext) -> LoggedCall:
        return LoggedCall(self, method, context)


class LoggedCall:
    """The line about one call. A stream has the model and the id of its last request."""

    def __init__(self, calls: LoggedCalls, method: Method, context: RpcContext) -> None:
        self._calls = calls
        self._method = method
        self._context = context
        self._peer = context.peer
        self._deadline = context.deadline
        self._received = self._sent = 0
        self._model = self._request_id = ""
        self._ended = False

    def received(self, message: Any) -> None:
        self._received += self._calls.take_size()
        if isinstance(message, InferMessage):
            self._model, self._request_id = message.head.model_name, message.head.id
        elif isinstance(message, Message):
            self._model = getattr(message, "model_name", "") or getattr(message, "name", "")

    def sent(self, reply: Reply) -> None:
        if isinstance(reply, list):
            self._sent += sum(map(len, reply))
        elif isinstance(reply, bytes):
            self._sent += len(reply)
        else:
            self._sent += reply.ByteSize()

    def ended(self, error: BaseException | None) -> None:
        if self._ended:
            return
        self._ended = True
        context = self._context
        self._calls.log.add(
            Access(
                at=time.time(),
                peer=self._peer.removeprefix("ipv4:").removeprefix("ipv6:"),
                protocol="gRPC",
                method=self._method.name,
                path="",
                status=self._status(error).name,
                received=self._received,
                sent=self._sent,
                seconds=(time.monotonic_ns() - context.opened) / 1e9,
                model=self._model,
                request_id=self._request_id,
                trace_id=f"{context.trace_id:032x}" if context.trace_id else "",
                caller="" if context.permit is None else context.permit.caller,
            )
        )

    def _status(self, error: BaseException | None) -> StatusCode:
        """The status of the call; that of the transport where it has ended the call itself."""
        if error is None:
            return StatusCode.OK
        if isinstance(error, InferenceError):
            return status_code(error)
        if isinstance(error, StatusError):
            return error.code
        if not isinstance(error, asyncio.CancelledError):
            return StatusCode.INTERNAL
        late = self._deadline is not None and asyncio.get_running_loop().time() >= self._deadline
        return StatusCode.DEADLINE_EXCEEDED if late else StatusCode.CANCELLED


_MOST_TENSORS = 16
"""Tensors of a request that its line names."""


class VerboseCalls:
    """An observer of calls that logs their steps; it numbers the calls that it has seen."""

    def __init__(self) -> None:
        self._next = 0

    def parsed(self, size: int) -> None:
        """Not looked at."""

    def begin(self, method: Method, context: RpcContext) -> VerboseCall:
        number, self._next = self._next, self._next + 1
        return VerboseCall(method, number)


class VerboseCall:
    """Logs the steps of one call."""

    def __init__(self, method: Method, number: int) -> None:
        self._streams = method.client_streaming
        self._infers = method.request is pb.ModelInferRequest
        self._name = f"{method.name}Handler" if self._infers else method.name
        self._number = number
        self._request_id = ""
        self._step("START")
        if self._infers:
            logger.debug("New request handler for %s, %d", self._name, number)

    def received(self, message: Any) -> None:
        if self._streams:
            self._step("READ")
        if isinstance(message, InferMessage):
            self._request_id = message.head.id
            logger.debug("%sprepared: %s", request_prefix(message.head.id), _summary(message.head))

    def sent(self, reply: Reply) -> None:
        if self._streams:
            self._step("WRITTEN")
        elif self._infers:
            text = "ModelInferHandler::InferResponseComplete, %d step ISSUED"
            logger.debug(text, self._number)

    def ended(self, error: BaseException | None) -> None:
        if isinstance(error, InferenceError):
            if self._infers:
                text = "%sInfer failed: %s"
                logger.debug(text, request_prefix(self._request_id), error.message)
        elif error is not None:
            self._log_step("Cancellation notification received for", "CANCELLED")
        self._step("COMPLETE")
        logger.debug("Done for %s, %d", self._name, self._number)

    def _step(self, step: str) -> None:
        self._log_step("Process for", step)

    def _log_step(self, what: str, step: str) -> None:
        context = "context 0, " if self._streams else ""
        text = "%s %s, rpc_ok=1, %s%d step %s"
        logger.debug(text, what, self._name, context, self._number, step)


def _summary(head: pb.ModelInferRequest) -> str:
    """A request in the words of Triton's line, without addresses and contents."""
    inputs = [
        f"input: {shortened(one.name)}, type: {shortened(one.datatype)},"
        f" original shape: [{','.join(map(str, one.shape[:_MOST_TENSORS]))}]"
        for one in head.inputs[:_MOST_TENSORS]
    ]
    outputs = [shortened(one.name) for one in head.outputs[:_MOST_TENSORS]]
    return "\n".join(
        (
            f"request id: {shortened(head.id)}, model: {shortened(head.model_name)},"
            f" requested version: {shortened(head.model_version) or -1}",
            "original inputs:",
            *inputs,
            "original requested outputs:",
            *outputs,
        )
    )
