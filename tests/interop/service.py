"""`grpc.testing.TestService`, which gRPC's interoperability clients call, on either transport.

python -m interop.service PORT [native|grpcio] [CERTIFICATE KEY]    (with tests/ on PYTHONPATH)
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import uvloop

from interop import interop_pb2
from penstock.core.errors import InvalidRequestError
from penstock.core.exit_deadline import ExitDeadline
from penstock.rpc.context import Method, Reply, RpcContext, Service, StatusError
from penstock.rpc.server import transport
from penstock.rpc.status import StatusCode
from penstock.settings import GrpcSettings, TlsSettings

pb: Any = interop_pb2
NAME = "grpc.testing.TestService"
_INITIAL = "x-grpc-test-echo-initial"
_TRAILING = "x-grpc-test-echo-trailing-bin"


def service() -> Service:
    """The methods of the service; `UnimplementedCall` is none of them, as it has to be."""
    return Service(
        NAME,
        [
            Method("EmptyCall", pb.Empty, pb.Empty, empty_call, eager=True),
            Method("UnaryCall", pb.SimpleRequest, pb.SimpleResponse, unary_call, eager=True),
            Method("CacheableUnaryCall", pb.SimpleRequest, pb.SimpleResponse, unary_call),
            Method(
                "StreamingOutputCall",
                pb.StreamingOutputCallRequest,
                pb.StreamingOutputCallResponse,
                streaming_output_call,
                server_streaming=True,
            ),
            Method(
                "StreamingInputCall",
                pb.StreamingInputCallRequest,
                pb.StreamingInputCallResponse,
                streaming_input_call,
                client_streaming=True,
            ),
            *(
                Method(
                    name,
                    pb.StreamingOutputCallRequest,
                    pb.StreamingOutputCallResponse,
                    handler,
                    client_streaming=True,
                    server_streaming=True,
                )
                for name, handler in (
                    ("FullDuplexCall", full_duplex_call),
                    ("HalfDuplexCall", half_duplex_call),
                )
            ),
        ],
    )


async def empty_call(_: Any, context: RpcContext) -> Reply:
    _echo_metadata(context)
    return pb.Empty()


async def unary_call(request: Any, context: RpcContext) -> Reply:
    _echo_metadata(context)
    _check_compressed(request, context)
    _end_if_asked(request)
    if request.HasField("response_compressed"):
        context.compress_responses(request.response_compressed.value)
    return pb.SimpleResponse(payload=pb.Payload(body=bytes(request.response_size)))


async def streaming_output_call(request: Any, context: RpcContext) -> None:
    _echo_metadata(context)
    await _respond(request, context)


async def streaming_input_call(requests: AsyncIterator[Any], context: RpcContext) -> Reply:
    size = 0
    async for request in requests:
        _check_compressed(request, context)
        size += len(request.payload.body)
    return pb.StreamingInputCallResponse(aggregated_payload_size=size)


async def full_duplex_call(requests: AsyncIterator[Any], context: RpcContext) -> None:
    _echo_metadata(context)
    async for request in requests:
        _end_if_asked(request)
        await _respond(request, context)


async def half_duplex_call(requests: AsyncIterator[Any], context: RpcContext) -> None:
    for request in [request async for request in requests]:
        await _respond(request, context)


async def _respond(request: Any, context: RpcContext) -> None:
    if any(wanted.compressed.value for wanted in request.response_parameters):
        context.compress_responses(True)
    for wanted in request.response_parameters:
        if wanted.interval_us:
            await asyncio.sleep(wanted.interval_us / 1e6)
        context.compress_responses(wanted.compressed.value)
        payload = pb.Payload(body=bytes(wanted.size))
        await context.write(pb.StreamingOutputCallResponse(payload=payload))


def _echo_metadata(context: RpcContext) -> None:
    for key, value in context.metadata_fields:
        if key == _INITIAL:
            context.set_initial_metadata([(key, value)])
        elif key == _TRAILING:
            context.add_trailing_metadata([(key, value)])


def _check_compressed(request: Any, context: RpcContext) -> None:
    """A client that says how it sends a message must do so; only our transport can tell."""
    if not request.HasField("expect_compressed") or context.request_compressed is None:
        return
    if request.expect_compressed.value != context.request_compressed:
        raise InvalidRequestError("the message is not compressed as announced")


def _end_if_asked(request: Any) -> None:
    status = request.response_status
    if status.code:
        raise StatusError(StatusCode(status.code), status.message)


async def main(port: int, name: str = "native", certificate: str = "", key: str = "") -> None:
    """Serve until killed."""
    tls = TlsSettings(enabled=bool(certificate), certificate=certificate, key=key)
    settings = GrpcSettings(address="127.0.0.1", port=port, tls=tls)
    async with transport(name)([service()], settings, ExitDeadline(0)) as found:
        print(f"serving on port {found}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), *sys.argv[2:]))
