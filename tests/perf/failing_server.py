"""A gRPC server of the C core's, with one model that fails every second request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import grpc

from penstock.protocol import grpc_service_pb2 as pb

_TEXT = "the model is moody: ünd so"


@dataclass(frozen=True, slots=True)
class FailingServer:
    """Where it listens, and the text of its errors."""

    address: str
    text: str = _TEXT


class _Service:
    def __init__(self) -> None:
        self._numbers = count()

    def model_metadata(self, request: Any, context: grpc.ServicerContext) -> Any:
        answer = pb.ModelMetadataResponse(name=request.name)
        answer.inputs.add(name="IN", datatype="FP32", shape=[4])
        answer.outputs.add(name="OUT", datatype="FP32", shape=[4])
        return answer

    def model_config(self, request: Any, context: grpc.ServicerContext) -> Any:
        return pb.ModelConfigResponse()

    def infer(self, request: Any, context: grpc.ServicerContext) -> Any:
        if next(self._numbers) % 2:
            context.abort(grpc.StatusCode.INTERNAL, _TEXT)
        return pb.ModelInferResponse(raw_output_contents=request.raw_input_contents)

    def stream(self, requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        for request in requests:
            yield pb.ModelStreamInferResponse(infer_response=pb.ModelInferResponse(id=request.id))
            if next(self._numbers) % 2:
                yield pb.ModelStreamInferResponse(error_message=_TEXT)


@contextmanager
def failing_server(
    credentials: grpc.ServerCredentials | None = None,
    options: Sequence[tuple[str, Any]] = (),
) -> Iterator[FailingServer]:
    """The server, on a port of its choice; with credentials, over TLS."""
    service = _Service()
    unary = grpc.unary_unary_rpc_method_handler
    handlers = {
        "ModelMetadata": unary(
            service.model_metadata,
            pb.ModelMetadataRequest.FromString,
            pb.ModelMetadataResponse.SerializeToString,
        ),
        "ModelConfig": unary(
            service.model_config,
            pb.ModelConfigRequest.FromString,
            pb.ModelConfigResponse.SerializeToString,
        ),
        "ModelInfer": unary(
            service.infer,
            pb.ModelInferRequest.FromString,
            pb.ModelInferResponse.SerializeToString,
        ),
        "ModelStreamInfer": grpc.stream_stream_rpc_method_handler(
            service.stream,
            pb.ModelInferRequest.FromString,
            pb.ModelStreamInferResponse.SerializeToString,
        ),
    }
    server = grpc.server(ThreadPoolExecutor(8), options=list(options))
    name = "inference.GRPCInferenceService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield FailingServer(f"127.0.0.1:{port}")
    finally:
        server.stop(None).wait()
