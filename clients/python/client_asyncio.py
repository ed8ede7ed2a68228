"""Penstock from Python, on asyncio, asking a server with the models of clients/models.

python client_asyncio.py HOST:PORT [AUTHORITY.pem]
"""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

import grpc
import grpc_service_pb2 as pb
import grpc_service_pb2_grpc as rpc
import messages


def connect(address: str, authority: str = "") -> grpc.aio.Channel:
    if not authority:
        return grpc.aio.insecure_channel(address, messages.CHANNEL_OPTIONS)
    credentials = grpc.ssl_channel_credentials(Path(authority).read_bytes())
    return grpc.aio.secure_channel(address, credentials, messages.CHANNEL_OPTIONS)


async def unary(stub: rpc.GRPCInferenceServiceStub) -> None:
    response = await stub.ModelInfer(messages.sums(), timeout=10)
    assert messages.integers(response, 0) == list(range(1, 17))
    assert messages.integers(response, 1) == list(range(-1, 15))


async def metadata(stub: rpc.GRPCInferenceServiceStub) -> None:
    request = pb.ModelStatisticsRequest(name="simple")
    response = await stub.ModelStatistics(request, timeout=10, metadata=messages.METADATA)
    assert response.model_stats[0].inference_stats.success.count >= 1


async def stream(stub: rpc.GRPCInferenceServiceStub) -> None:
    answers = stub.ModelStreamInfer(iter([messages.generation(20)]), timeout=30)
    count, final = 0, False
    async for answer in answers:
        assert not final
        count, final = count + 1, messages.is_final(answer)
        print(messages.token(answer), end="", flush=True)
    print()
    assert final
    assert count > 2


async def cancel(stub: rpc.GRPCInferenceServiceStub) -> None:
    """Leave after three tokens: the server stops the generation.

    Cancelling the task that reads has the same effect.
    """
    answers = stub.ModelStreamInfer(iter([messages.generation(1000)]), timeout=30)
    for _ in range(3):
        messages.token(await answers.read())
    answers.cancel()
    assert await answers.code() == grpc.StatusCode.CANCELLED


async def deadline(stub: rpc.GRPCInferenceServiceStub) -> None:
    """A quarter of a second is too short: the tokens that come in time are kept."""
    answers = stub.ModelStreamInfer(iter([messages.generation(1000)]), timeout=0.25)
    with suppress(grpc.aio.AioRpcError):
        async for answer in answers:
            messages.token(answer)
    assert await answers.code() == grpc.StatusCode.DEADLINE_EXCEEDED


async def retry(stub: rpc.GRPCInferenceServiceStub) -> None:
    response = await stub.ModelInfer(messages.attempts(), timeout=10)
    assert messages.integers(response) == [3]


async def main(address: str, authority: str = "") -> None:
    async with connect(address, authority) as channel:
        stub = rpc.GRPCInferenceServiceStub(channel)
        for feature in (unary, metadata, stream, cancel, deadline, retry):
            try:
                await feature(stub)
            except grpc.aio.AioRpcError as error:
                sys.exit(f"{feature.__name__}: {error.code().name}: {error.details()}")
            print(f"ok {feature.__name__}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
