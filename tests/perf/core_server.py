"""A server of what the KServe v2 protocol asks of all servers: metadata, health, inference.

It knows no configuration, statistics or shared memory, and tensors over HTTP as JSON only.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc

from harness.http_threads import Quiet, answering
from penstock.protocol import grpc_service_pb2 as pb

_SERVICE = "inference.GRPCInferenceService"


@dataclass(frozen=True, slots=True)
class CoreServer:
    """Where it listens."""

    grpc: str
    http: str


def _metadata(request: Any, context: grpc.ServicerContext) -> Any:
    if request.name not in _MODELS:
        context.abort(grpc.StatusCode.NOT_FOUND, f"no model {request.name}")
    answer = pb.ModelMetadataResponse(name=request.name)
    for tensor in _MODELS[request.name]:
        answer.inputs.add(**tensor)
    return answer


def _infer(request: Any, context: grpc.ServicerContext) -> Any:
    return pb.ModelInferResponse(raw_output_contents=request.raw_input_contents)


_MODELS: dict[str, list[dict[str, Any]]] = {
    "rows": [{"name": "IN", "datatype": "FP32", "shape": [-1, 4]}],
    "bare": [],
    "odd": [{"name": "IN", "datatype": "STRING", "shape": [1]}],
}


class _Handler(Quiet, BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/v2":
            self._answer(200, {"name": "core", "version": "1", "extensions": []})
        elif (name := self.path.removeprefix("/v2/models/")) in _MODELS:
            self._answer(200, {"name": name, "inputs": _MODELS[name], "outputs": []})
        else:
            self._answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers["content-type"] != "application/json":
            self._answer(422, {"detail": "this is not said to be JSON"})
            return
        try:
            (tensor,) = json.loads(body)["inputs"]
            self._answer(200, {"outputs": [{**tensor, "data": tensor["data"]}]})
        except (ValueError, KeyError):
            self._answer(400, {"detail": "there is no data in the JSON"})

    def _answer(self, status: int, value: Any) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def core_server() -> Iterator[CoreServer]:
    """The server, on ports of its choice."""
    handlers = {
        "ModelMetadata": grpc.unary_unary_rpc_method_handler(
            _metadata,
            pb.ModelMetadataRequest.FromString,
            pb.ModelMetadataResponse.SerializeToString,
        ),
        "ModelInfer": grpc.unary_unary_rpc_method_handler(
            _infer, pb.ModelInferRequest.FromString, pb.ModelInferResponse.SerializeToString
        ),
    }
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with answering(ThreadingHTTPServer(("127.0.0.1", 0), _Handler)) as http:
        try:
            yield CoreServer(f"127.0.0.1:{port}", http)
        finally:
            server.stop(None).wait()
