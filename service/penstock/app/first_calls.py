"""How models that were given as arguments are called: lines to copy, in the log at the start."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from penstock.core.config import Input, ModelConfig
from penstock.core.errors import InferenceError
from penstock.core.tensor import DataType
from penstock.server.server import InferenceServer
from penstock.settings import Settings
from penstock.telemetry import logging as server_log

logger = logging.getLogger(__name__)

_FEW = 64
"""Elements of an input that are written out."""
_FILES = ("penstock.image", "penstock.audio")
_JSON = "-H 'Content-Type: application/json'"


async def show_calls(server: InferenceServer, settings: Settings, ports: Mapping[str, int]) -> None:
    """Log how each model that was given as an argument is called, by HTTP and by gRPC."""
    if not settings.repository.files:
        return
    described = await server.openai_descriptions() if settings.openai.enabled else {}
    places = _Places.of(settings, ports)
    lines: list[str] = []
    for file in settings.repository.files:
        try:
            config = await server.model_config(file.name, "")
        except InferenceError:
            continue  # the table says why it does not serve
        paths = described.get(file.name, {}).get("paths", {})
        calls = [*_openai_calls(file.name, paths, places.openai), *_calls(config, places)]
        lines += ["", f"Call model '{file.name}':", *(f"  {call}" for call in calls)]
    if lines:
        server_log.log_table(logger, "\n".join(lines[1:]))


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the endpoints are; empty where one is off, or listens at a file."""

    http: str
    grpc: str
    openai: str

    @classmethod
    def of(cls, settings: Settings, ports: Mapping[str, int]) -> _Places:
        http, grpc = settings.http, settings.grpc
        scheme = "https" if http.tls.enabled else "http"

        def place(title: str, address: str) -> str:
            if title not in ports or address.startswith("unix:"):
                return ""
            host = "localhost" if address in ("0.0.0.0", "::", "[::]") else address
            return f"{host}:{ports[title]}"

        web, own = place("HTTPService", http.address), place("OpenAIService", http.host)
        url, other = (f"{scheme}://{each}" if each else "" for each in (web, own))
        openai = (other or url) if settings.openai.enabled else ""
        plain = "" if grpc.tls.enabled else place("GRPCInferenceService", grpc.address)
        return cls(url, plain, openai)


def _openai_calls(name: str, paths: Collection[str], url: str) -> Iterator[str]:
    """The calls of OpenAI's API that the model's own application answers."""
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hello!"}]},
        "/v1/completions": {"prompt": "Once upon a time", "max_tokens": 32},
        "/v1/embeddings": {"input": ["a text"]},
        "/v1/rerank": {"query": "a question", "documents": ["one text", "another one"]},
    }
    found = [path for path in bodies if path in paths]
    if not (url and found):
        return
    for path in found:
        body = json.dumps({"model": name, **bodies[path]})
        yield f"curl -s {url}{path} {_JSON} -d {shlex.quote(body)}"
    yield f"OpenAI's clients: base_url {url}/v1, model {name}, any api_key"


def _calls(config: ModelConfig, places: _Places) -> Iterator[str]:
    """The calls of KServe's API, with the inputs that a request must have."""
    if any(config.parameter(name) for name in _FILES):
        yield "its inputs are files, one for each row: docs/tensor-models.md has a client"
        return
    inputs = [tensor for tensor in config.input if not tensor.optional]
    policy = config.model_transaction_policy
    if policy is not None and policy.decoupled:
        yield from _stream_calls(config, places)
        return
    body = {"inputs": [_tensor(tensor, config) for tensor in inputs]}
    url = f"{places.http}/v2/models/{config.name}/infer"
    large = any(len(tensor["data"]) > _FEW for tensor in body["inputs"])
    if places.http and not large:
        yield f"curl -s {url} -d {shlex.quote(json.dumps(body))}"
    elif places.http:
        filled = json.dumps({"inputs": [_shortened(tensor) for tensor in body["inputs"]]})
        program = f"import json; print(json.dumps({filled.replace(_OPEN, '').replace(_CLOSE, '')}))"
        yield f"python3 -c {shlex.quote(program)} | curl -s {url} -d @-"
    if places.grpc and not large:
        asked = {"model_name": config.name, "inputs": [_typed(each) for each in body["inputs"]]}
        yield (
            f"grpcurl -plaintext -d {shlex.quote(json.dumps(asked))} {places.grpc}"
            " inference.GRPCInferenceService/ModelInfer"
        )


def _stream_calls(config: ModelConfig, places: _Places) -> Iterator[str]:
    texts = [t for t in config.input if t.data_type is DataType.BYTES and not t.optional]
    if places.http and len(texts) == 1:
        body = json.dumps({texts[0].name: "Once upon a time"})
        url = f"{places.http}/v2/models/{config.name}/generate_stream"
        yield f"curl -sN {url} -d {shlex.quote(body)}"


_OPEN, _CLOSE = '"<', '>"'
"""Marks around what stands for itself in a program."""


def _shortened(tensor: Mapping[str, Any]) -> dict[str, Any]:
    """A tensor whose many equal elements are written as a product, between marks."""
    data = tensor["data"]
    if len(data) <= _FEW:
        return dict(tensor)
    return {**tensor, "data": f"<[{data[0]!r}] * {len(data)}>"}


def _tensor(tensor: Input, config: ModelConfig) -> dict[str, Any]:
    """An input in KServe's JSON: each free dimension is 1, and so are all elements."""
    rows = [1] if config.max_batch_size else []
    shape = [*rows, *(1 if size < 0 else size for size in tensor.dims)]
    assert tensor.data_type is not None
    return {
        "name": tensor.name,
        "shape": shape,
        "datatype": tensor.data_type.value,
        "data": [_element(tensor.data_type)] * prod(shape),
    }


def _element(datatype: DataType) -> Any:
    if datatype is DataType.BYTES:
        return "text"
    if datatype is DataType.BOOL:
        return True
    return 1.0 if datatype.numpy.kind == "f" else 1


_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def _typed(tensor: Mapping[str, Any]) -> dict[str, Any]:
    """A tensor as grpcurl takes it; bytes in base64."""
    data = tensor["data"]
    if tensor["datatype"] == "BYTES":
        data = ["dGV4dA=="] * len(data)
    field = _CONTENTS.get(tensor["datatype"], "bytes_contents")
    return {**{k: v for k, v in tensor.items() if k != "data"}, "contents": {field: data}}
