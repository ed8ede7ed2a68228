"""Penstock from Python, on threads, asking a server with the models of clients/models.

python client.py HOST:PORT [AUTHORITY.pem]
"""

import sys
from contextlib import suppress
from pathlib import Path

import grpc
import grpc_service_pb2 as pb
import grpc_service_pb2_grpc as rpc
import messages


def connect(address: str, authority: str = "") -> grpc.Channel:
    if not authority:
        return grpc.insecure_channel(address, messages.CHANNEL_OPTIONS)
    credentials = grpc.ssl_channel_credentials(Path(authority).read_bytes())
    return grpc.secure_channel(address, credentials, messages.CHANNEL_OPTIONS)


def unary(stub: rpc.GRPCInferenceServiceStub) -> None:
    response = stub.ModelInfer(messages.sums(), timeout=10)
    assert messages.integers(response, 0) == list(range(1, 17))
    assert messages.integers(response, 1) == list(range(-1, 15))


def metadata(stub: rpc.GRPCInferenceServiceStub) -> None:
    request = pb.ModelStatisticsRequest(name="simple")
    response = stub.ModelStatistics(request, timeout=10, metadata=messages.METADATA)
    assert response.model_stats[0].inference_stats.success.count >= 1


def stream(stub: rpc.GRPCInferenceServiceStub) -> None:
    answers = list(stub.ModelStreamInfer(iter([messages.generation(20)]), timeout=30))
    print("".join(messages.token(answer) for answer in answers))
    assert len(answers) > 2
    assert [messages.is_final(answer) for answer in answers] == [False] * (len(answers) - 1) + [
        True
    ]


def cancel(stub: rpc.GRPCInferenceServiceStub) -> None:
    """Leave after three tokens: the server stops the generation."""
    answers = stub.ModelStreamInfer(iter([messages.generation(1000)]), timeout=30)
    for _ in range(3):
        messages.token(next(answers))
    answers.cancel()
    assert code_at_the_end(answers) == grpc.StatusCode.CANCELLED


def deadline(stub: rpc.GRPCInferenceServiceStub) -> None:
    """A quarter of a second is too short: the tokens that come in time are kept."""
    answers = stub.ModelStreamInfer(iter([messages.generation(1000)]), timeout=0.25)
    assert code_at_the_end(answers) == grpc.StatusCode.DEADLINE_EXCEEDED


def code_at_the_end(answers: grpc.Call) -> grpc.StatusCode:
    with suppress(grpc.RpcError):
        for answer in answers:
            messages.token(answer)
    return answers.code()


def retry(stub: rpc.GRPCInferenceServiceStub) -> None:
    response = stub.ModelInfer(messages.attempts(), timeout=10)
    assert messages.integers(response) == [3]


def main(address: str, authority: str = "") -> None:
    with connect(address, authority) as channel:
        stub = rpc.GRPCInferenceServiceStub(channel)
        for feature in (unary, metadata, stream, cancel, deadline, retry):
            try:
                feature(stub)
            except grpc.RpcError as error:
                sys.exit(f"{feature.__name__}: {error.code().name}: {error.details()}")
            print(f"ok {feature.__name__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
