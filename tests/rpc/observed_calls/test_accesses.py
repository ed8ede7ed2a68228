"""Lines of the access log about gRPC calls: how they end, and what they count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from operator import attrgetter
from typing import Any

import pytest

from penstock.core.access import Access
from penstock.core.errors import InternalError, NotFoundError
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.call_log import LoggedCalls, observed
from penstock.rpc.context import Method, Reply, RpcContext, Service, StatusError
from penstock.rpc.status import StatusCode
from rpc.manual import Call


class Kept:
    """Keeps accesses."""

    def __init__(self) -> None:
        self.accesses: list[Access] = []

    def add(self, access: Access) -> None:
        self.accesses.append(access)


class Caller:
    """Completion callbacks of a caller that looks at nothing."""

    def returned(self, response: Reply | None) -> None:
        """Not looked at."""

    def raised(self, error: BaseException) -> None:
        """Not looked at."""


def logged(method: Method) -> tuple[Method, Kept]:
    kept = Kept()
    (service,) = observed([Service("s", [method])], LoggedCalls(kept), sizes=True)
    return service.methods[0], kept


def parsed(method: Method, message: Any) -> Any:
    assert method.parse is not None
    return method.parse(message if isinstance(message, bytes) else message.SerializeToString())


ENDS = [
    (None, "OK"),
    (NotFoundError("no"), "NOT_FOUND"),
    (StatusError(StatusCode.ABORTED), "ABORTED"),
    (ValueError("a fault"), "INTERNAL"),
    (asyncio.CancelledError(), "CANCELLED"),
]


@pytest.mark.parametrize(("error", "status"), ENDS)
async def test_a_call_ends_with_the_status_of_its_error(
    error: BaseException | None, status: str
) -> None:
    async def handler(_: Any, __: RpcContext) -> Reply:
        if error is not None:
            raise error
        return b"12345"

    method, kept = logged(
        Method("ModelReady", pb.ModelReadyRequest, pb.ModelReadyResponse, handler)
    )
    request = pb.ModelReadyRequest(name="m")
    await asyncio.wait([asyncio.ensure_future(_answer(method, request))])
    (access,) = kept.accesses
    assert (access.method, access.status, access.model) == ("ModelReady", status, "m")
    assert access.received == request.ByteSize()
    assert access.sent == (5 if error is None else 0)
    assert access.peer == "127.0.0.1:1"


async def _answer(method: Method, request: Any) -> Reply | None:
    return await method.handler(parsed(method, request), Call())


async def test_a_cancelled_call_is_late_if_its_deadline_has_passed() -> None:
    async def handler(_: Any, __: RpcContext) -> Reply:
        raise asyncio.CancelledError

    method, kept = logged(
        Method("ModelReady", pb.ModelReadyRequest, pb.ModelReadyResponse, handler)
    )
    call = Call()
    call.deadline = asyncio.get_running_loop().time() - 0.001
    with pytest.raises(asyncio.CancelledError):
        await method.handler(parsed(method, pb.ModelReadyRequest()), call)
    assert [access.status for access in kept.accesses] == ["DEADLINE_EXCEEDED"]


async def test_a_stream_that_is_observed_has_what_its_call_has() -> None:
    contexts: list[RpcContext] = []

    async def handler(_: Any, context: RpcContext) -> None:
        contexts.append(context)

    method, _ = logged(
        Method("M", pb.ModelReadyRequest, pb.ModelReadyResponse, handler, client_streaming=True)
    )
    call = Call()
    call.metadata, call.metadata_fields = {"a": "b"}, (("a", "b"),)
    call.deadline, call.opened, call.writes_at_once = 12.5, 7, True
    call.half_close()
    await method.handler(call.requests(), call)
    had = attrgetter("metadata", "metadata_fields", "deadline", "opened", "writes_at_once", "peer")
    assert [had(context) for context in contexts] == [had(call)]


async def test_a_message_that_cannot_be_parsed_has_its_line() -> None:
    async def handler(_: Any, __: RpcContext) -> Reply:
        return b""

    method, kept = logged(
        Method("ModelReady", pb.ModelReadyRequest, pb.ModelReadyResponse, handler)
    )
    with pytest.raises(InternalError, match="Unable to parse request"):
        await method.handler(parsed(method, b"\xff\xff\xff"), Call())
    assert [(access.status, access.received) for access in kept.accesses] == [("INTERNAL", 3)]


async def test_a_call_without_a_coroutine_that_is_abandoned_has_one_line() -> None:
    cancelled = []

    def start(_: Any, __: RpcContext, ___: Any) -> Any:
        return lambda: cancelled.append(True)

    async def handler(_: Any, __: RpcContext) -> None:
        raise AssertionError

    method, kept = logged(
        Method("M", pb.ModelReadyRequest, pb.ModelReadyResponse, handler, start=start)
    )
    assert method.start is not None
    cancel = method.start(parsed(method, pb.ModelReadyRequest()), Call(), Caller())
    assert cancel is not None
    assert kept.accesses == []
    cancel()
    cancel()
    assert cancelled == [True, True]
    assert [access.status for access in kept.accesses] == ["CANCELLED"]


async def test_messages_of_a_stream_are_counted() -> None:
    async def handler(messages: AsyncIterator[Any], context: RpcContext) -> None:
        async for _ in messages:
            context.write_nowait(pb.ModelReadyResponse(ready=True))
            await context.write([b"123", b"4"][:0])

    method, kept = logged(
        Method(
            "M",
            pb.ModelReadyRequest,
            pb.ModelReadyResponse,
            handler,
            client_streaming=True,
            server_streaming=True,
        )
    )
    requests = [pb.ModelReadyRequest(name=name) for name in ("a", "bb")]

    async def messages() -> AsyncIterator[Any]:
        for request in requests:
            yield parsed(method, request)

    await method.handler(messages(), Call())
    (access,) = kept.accesses
    assert access.received == sum(request.ByteSize() for request in requests)
    assert (access.sent, access.model, access.status) == (4, "bb", "OK")
