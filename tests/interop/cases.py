"""The interoperability cases of gRPC, with grpcio (the C++ core) as the client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc
import pytest

from interop.service import NAME, pb

LARGE_REQUEST, LARGE_RESPONSE = 271_828, 314_159
UP, DOWN = (27_182, 8, 1_828, 45_904), (31_415, 9, 2_653, 58_979)
SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \U0001f608\t\n"
_METADATA = (
    ("x-grpc-test-echo-initial", "test_initial_metadata_value"),
    ("x-grpc-test-echo-trailing-bin", b"\xab\xab\xab"),
)

CASES: dict[str, Callable[[Any], Awaitable[None]]] = {}
"""What each case does on a channel, by name."""


def _case(function: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    CASES[function.__name__] = function
    return function


def _call(channel: Any, kind: str, name: str, request: Any, response: Any) -> Any:
    path = name if name.startswith("/") else f"/{NAME}/{name}"
    return getattr(channel, kind)(path, request.SerializeToString, response.FromString)


def unary(channel: Any) -> Any:
    return _call(channel, "unary_unary", "UnaryCall", pb.SimpleRequest, pb.SimpleResponse)


def _upward(channel: Any) -> Any:
    messages = pb.StreamingInputCallRequest, pb.StreamingInputCallResponse
    return _call(channel, "stream_unary", "StreamingInputCall", *messages)


def _downward(channel: Any) -> Any:
    messages = pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse
    return _call(channel, "unary_stream", "StreamingOutputCall", *messages)


def _duplex(channel: Any) -> Any:
    messages = pb.StreamingOutputCallRequest, pb.StreamingOutputCallResponse
    return _call(channel, "stream_stream", "FullDuplexCall", *messages)


def _payload(size: int) -> Any:
    return pb.Payload(body=bytes(size))


def _asking(down: int, up: int) -> Any:
    parameters = [pb.ResponseParameters(size=down)]
    return pb.StreamingOutputCallRequest(response_parameters=parameters, payload=_payload(up))


async def _sizes(responses: Any) -> list[int]:
    return [len(response.payload.body) async for response in responses]


async def _ends_with(call: Any, code: grpc.StatusCode, details: str | None = None) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await (_sizes(call) if hasattr(call, "__aiter__") else call)
    assert failed.value.code() is code
    assert details is None or failed.value.details() == details


@_case
async def empty_unary(channel: Any) -> None:
    call = _call(channel, "unary_unary", "EmptyCall", pb.Empty, pb.Empty)
    assert await call(pb.Empty()) == pb.Empty()


@_case
async def large_unary(channel: Any) -> None:
    request = pb.SimpleRequest(response_size=LARGE_RESPONSE, payload=_payload(LARGE_REQUEST))
    assert len((await unary(channel)(request)).payload.body) == LARGE_RESPONSE


@_case
async def client_streaming(channel: Any) -> None:
    requests = [pb.StreamingInputCallRequest(payload=_payload(size)) for size in UP]
    assert (await _upward(channel)(iter(requests))).aggregated_payload_size == sum(UP)


@_case
async def server_streaming(channel: Any) -> None:
    parameters = [pb.ResponseParameters(size=size) for size in DOWN]
    request = pb.StreamingOutputCallRequest(response_parameters=parameters)
    assert await _sizes(_downward(channel)(request)) == list(DOWN)


@_case
async def ping_pong(channel: Any) -> None:
    call = _duplex(channel)()
    for down, up in zip(DOWN, UP, strict=True):
        await call.write(_asking(down, up))
        assert len((await call.read()).payload.body) == down
    await call.done_writing()
    assert await call.read() == grpc.aio.EOF  # type: ignore[attr-defined]
    assert await call.code() is grpc.StatusCode.OK


@_case
async def empty_stream(channel: Any) -> None:
    call = _duplex(channel)(iter(()))
    assert await _sizes(call) == []
    assert await call.code() is grpc.StatusCode.OK


@_case
async def client_compressed_unary(channel: Any) -> None:
    """Sent both ways; only our own transport can tell whether the client did as it says."""
    request = pb.SimpleRequest(response_size=LARGE_RESPONSE, payload=_payload(LARGE_REQUEST))
    for compression in (grpc.Compression.Gzip, grpc.Compression.NoCompression):
        request.expect_compressed.value = compression is grpc.Compression.Gzip
        response = await unary(channel)(request, compression=compression)
        assert len(response.payload.body) == LARGE_RESPONSE


@_case
async def client_compressed_streaming(channel: Any) -> None:
    """Of sizes that the core compresses: it leaves messages as they are that would not shrink."""
    sizes = UP[0], UP[-1]
    requests = [pb.StreamingInputCallRequest(payload=_payload(size)) for size in sizes]
    for request in requests:
        request.expect_compressed.value = True
    call = _upward(channel)(iter(requests), compression=grpc.Compression.Gzip)
    assert (await call).aggregated_payload_size == sum(sizes)


@_case
async def server_compressed_unary(channel: Any) -> None:
    request = pb.SimpleRequest(response_size=LARGE_RESPONSE, payload=_payload(LARGE_REQUEST))
    for compressed in (True, False):
        request.response_compressed.value = compressed
        assert len((await unary(channel)(request)).payload.body) == LARGE_RESPONSE


@_case
async def server_compressed_streaming(channel: Any) -> None:
    parameters = [pb.ResponseParameters(size=size) for size in (31_415, 92_653)]
    parameters[0].compressed.value = True
    request = pb.StreamingOutputCallRequest(response_parameters=parameters)
    assert await _sizes(_downward(channel)(request)) == [31_415, 92_653]


@_case
async def cancel_after_begin(channel: Any) -> None:
    call = _upward(channel)()
    call.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED


@_case
async def cancel_after_first_response(channel: Any) -> None:
    call = _duplex(channel)()
    await call.write(_asking(DOWN[0], UP[0]))
    assert len((await call.read()).payload.body) == DOWN[0]
    call.cancel()
    assert await call.code() is grpc.StatusCode.CANCELLED


@_case
async def timeout_on_sleeping_server(channel: Any) -> None:
    parameters = [pb.ResponseParameters(size=1, interval_us=60_000_000)]
    request = pb.StreamingOutputCallRequest(response_parameters=parameters)
    call = _duplex(channel)(iter([request]), timeout=0.1)
    await _ends_with(call, grpc.StatusCode.DEADLINE_EXCEEDED)


async def _status(channel: Any, message: str) -> None:
    status = pb.EchoStatus(code=2, message=message)
    call = unary(channel)(pb.SimpleRequest(response_status=status))
    await _ends_with(call, grpc.StatusCode.UNKNOWN, message)
    requests: Iterable[Any] = iter([pb.StreamingOutputCallRequest(response_status=status)])
    await _ends_with(_duplex(channel)(requests), grpc.StatusCode.UNKNOWN, message)


@_case
async def status_code_and_message(channel: Any) -> None:
    await _status(channel, "test status message")


@_case
async def special_status_message(channel: Any) -> None:
    await _status(channel, SPECIAL)


@_case
async def unimplemented_method(channel: Any) -> None:
    call = _call(channel, "unary_unary", "UnimplementedCall", pb.Empty, pb.Empty)
    await _ends_with(call(pb.Empty()), grpc.StatusCode.UNIMPLEMENTED)


@_case
async def unimplemented_service(channel: Any) -> None:
    path = "/grpc.testing.UnimplementedService/UnimplementedCall"
    call = _call(channel, "unary_unary", path, pb.Empty, pb.Empty)
    await _ends_with(call(pb.Empty()), grpc.StatusCode.UNIMPLEMENTED)


@_case
async def custom_metadata(channel: Any) -> None:
    request = pb.SimpleRequest(response_size=1, payload=_payload(1))
    one = unary(channel)(request, metadata=_METADATA)
    await one
    both = _duplex(channel)(iter([_asking(1, 1)]), metadata=_METADATA)
    assert await _sizes(both) == [1]
    for call in (one, both):
        assert _METADATA[0] in tuple(await call.initial_metadata())
        assert _METADATA[1] in tuple(await call.trailing_metadata())
