"""Requests as messages, and clients that raise `CallError` for whatever the server refuses."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import contextmanager
from typing import Any

import aiohttp
import grpc
import numpy as np
from numpy.typing import NDArray

from loadtest.soak.ledger import CallError
from penstock.protocol import grpc_service_pb2 as pb

Array = NDArray[Any]

PATIENCE = 60.0
"""Seconds after which a call without an outcome is lost."""

SERVICE = "/inference.GRPCInferenceService/"
_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]
_TYPES = {"f": "FP32", "i": "INT32", "u": "UINT32"}
_DTYPES = {"FP32": np.float32, "INT32": np.int32, "UINT32": np.uint32}


def message(model: str, inputs: Mapping[str, Array], id: str = "") -> pb.ModelInferRequest:
    """A request with raw contents."""
    request = pb.ModelInferRequest(model_name=model, id=id)
    for name, array in inputs.items():
        request.inputs.add(name=name, datatype=_TYPES[array.dtype.kind], shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    return request


def output(response: pb.ModelInferResponse, name: str) -> Array:
    """One output of a response as an array."""
    at = [tensor.name for tensor in response.outputs].index(name)
    tensor = response.outputs[at]
    raw = response.raw_output_contents[at]
    return np.frombuffer(raw, _DTYPES[tensor.datatype]).reshape(tuple(tensor.shape))


class GrpcClient:
    """One channel to a server; a call without an outcome after `patience` seconds is lost."""

    def __init__(self, target: str, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)

    async def call(self, name: str, request: Any) -> Any:
        """A unary method of the service."""
        response = getattr(pb, f"{name}Response")
        method = self._channel.unary_unary(
            SERVICE + name,
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        with _grpc_errors():
            return await method(request, timeout=self._patience)

    async def raw(self, name: str, data: bytes) -> bytes:
        """A unary method, with the bytes of a request that need not be one."""
        with _grpc_errors():
            method = self._channel.unary_unary(SERVICE + name, bytes, bytes)
            answer: bytes = await method(data, timeout=PATIENCE)
            return answer

    def begin(self, request: pb.ModelInferRequest) -> Any:
        """`ModelInfer` as a call that may be cancelled."""
        return self._channel.unary_unary(
            f"{SERVICE}ModelInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )(request, timeout=PATIENCE)

    def stream(self, requests: list[pb.ModelInferRequest]) -> Any:
        """`ModelStreamInfer` with these requests, half-closed behind them."""
        return self._channel.stream_stream(
            f"{SERVICE}ModelStreamInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )(iter(requests), timeout=PATIENCE)

    async def responses(
        self, requests: list[pb.ModelInferRequest]
    ) -> AsyncIterator[pb.ModelStreamInferResponse]:
        """All responses of a stream with these requests."""
        with _grpc_errors():
            async for response in self.stream(requests):
                yield response

    async def close(self) -> None:
        await self._channel.close(None)


@contextmanager
def _grpc_errors() -> Any:
    try:
        yield
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            raise TimeoutError(error.details()) from None
        raise CallError(error.code().name, error.details() or "") from None


class HttpClient:
    """One pool of connections to a server."""

    def __init__(self, port: int, metrics_port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"
        self._metrics = f"http://127.0.0.1:{metrics_port}/metrics"
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE))

    async def infer_json(self, model: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Tensors as JSON both ways."""
        tensors = [{**_head(name, x), "data": x.ravel().tolist()} for name, x in inputs.items()]
        _, body = await self.post(f"/v2/models/{model}/infer", json.dumps({"inputs": tensors}))
        return {
            tensor["name"]: np.array(tensor["data"], _DTYPES[tensor["datatype"]]).reshape(
                tensor["shape"]
            )
            for tensor in json.loads(body)["outputs"]
        }

    async def infer_binary(self, model: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Tensors as bytes behind the JSON, both ways."""
        tensors = [
            {**_head(name, x), "parameters": {"binary_data_size": x.nbytes}}
            for name, x in inputs.items()
        ]
        wanted = {"inputs": tensors, "parameters": {"binary_data_output": True}}
        head = json.dumps(wanted).encode()
        data = head + b"".join(array.tobytes() for array in inputs.values())
        sizes = {"Inference-Header-Content-Length": str(len(head))}
        headers, body = await self.post(f"/v2/models/{model}/infer", data, sizes)
        size = int(headers["Inference-Header-Content-Length"])
        return _binary_outputs(json.loads(body[:size]), body[size:])

    async def post(
        self, path: str, data: bytes | str, headers: Mapping[str, str] | None = None
    ) -> tuple[Mapping[str, str], bytes]:
        """Headers and body of the reply to a POST."""
        with _http_errors():
            async with self._session.post(self._base + path, data=data, headers=headers) as reply:
                return reply.headers, await _body(reply)

    async def get(self, path: str) -> bytes:
        with _http_errors():
            async with self._session.get(self._base + path) as reply:
                return await _body(reply)

    async def metrics(self) -> str:
        """The metrics page."""
        with _http_errors():
            async with self._session.get(self._metrics) as reply:
                return (await _body(reply)).decode()

    async def events(self, path: str, body: str) -> AsyncIterator[dict[str, Any]]:
        """The events of a `generate_stream` reply."""
        with _http_errors():
            async with self._session.post(self._base + path, data=body) as reply:
                if reply.status != 200:
                    await _body(reply)
                async for line in reply.content:
                    if line.startswith(b"data: "):
                        yield json.loads(line[6:])

    async def close(self) -> None:
        await self._session.close()


def _head(name: str, array: Array) -> dict[str, Any]:
    return {"name": name, "datatype": _TYPES[array.dtype.kind], "shape": array.shape}


def _binary_outputs(head: Any, data: bytes) -> dict[str, Array]:
    found, at = {}, 0
    for tensor in head["outputs"]:
        end = at + tensor["parameters"]["binary_data_size"]
        array = np.frombuffer(data[at:end], _DTYPES[tensor["datatype"]])
        found[tensor["name"]] = array.reshape(tensor["shape"])
        at = end
    return found


async def _body(reply: aiohttp.ClientResponse) -> bytes:
    body = await reply.read()
    if reply.status != 200:
        raise CallError(str(reply.status), body[:300].decode(errors="replace"))
    return body


@contextmanager
def _http_errors() -> Any:
    try:
        yield
    except aiohttp.ClientError as error:
        raise CallError(type(error).__name__, str(error)) from None
