"""How models that were given as arguments are called: lines to copy, in the log at the start."""

from __future__ import annotations

import json
import logging
import shlex
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from penstock.core.config import Input, ModelConfig, Output
from penstock.core.errors import InferenceError
from penstock.core.tensor import DataType
from penstock.server.server import InferenceServer
from penstock.settings import Settings
from penstock.telemetry import logging as server_log

logger = logging.getLogger(__name__)

_FEW = 64
"""Elements of an input that are written out."""
_MANY = 1 << 24
"""Elements that a program may write out."""
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
        if any(output.label_filename for output in config.output):
            paths = ()  # vectors of a classifier's labels are no embeddings, and rank nothing
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
            host = f"[{host}]" if ":" in host and not host.startswith("[") else host
            return f"{host}:{ports[title]}"

        web, own = place("HTTPService", http.address), place("OpenAIService", http.host)
        url, other = (f"{scheme}://{each}" if each else "" for each in (web, own))
        openai = (other or url) if settings.openai.enabled else ""
        asked = grpc.reflection and not grpc.tls.enabled  # which grpcurl needs, and what it trusts
        plain = place("GRPCInferenceService", grpc.address) if asked else ""
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
    yield f"OpenAI's clients: base_url {url}/v1, model {name}"


def _calls(config: ModelConfig, places: _Places) -> Iterator[str]:
    """The calls of KServe's API, with the inputs that a request must have."""
    if any(config.parameter(name) for name in _FILES):
        yield "its inputs are files, one for each row: docs/tensor-models.md has a client"
        return
    inputs = [_Filled.of(each, config) for each in config.input if not each.optional]
    policy = config.model_transaction_policy
    if policy is not None and policy.decoupled:
        yield from _stream_calls(config, places)
        return
    url = f"{places.http}/v2/models/{config.name}/infer"
    most = max([each.count for each in inputs], default=0)
    declared: list[Input | Output] = [*config.input, *config.output]
    if any(each.data_type in _HALVES for each in declared):
        if places.grpc and most <= _FEW:
            yield _grpcurl(places, config, **_raw_message(inputs))
        return
    if places.http and most <= _FEW:
        body = json.dumps({"inputs": [each.as_json() for each in inputs]})
        yield f"curl -s {url} -d {shlex.quote(body)}"
    elif places.http and most <= _MANY:
        tensors = ", ".join(each.as_program() for each in inputs)
        program = f"import json; print(json.dumps({{'inputs': [{tensors}]}}))"
        yield f"python3 -c {shlex.quote(program)} | curl -s {url} -d @-"
    if places.grpc and most <= _FEW:
        yield _grpcurl(places, config, inputs=[each.as_message() for each in inputs])


def _grpcurl(places: _Places, config: ModelConfig, **fields: list[Any]) -> str:
    asked = json.dumps({"model_name": config.name, **fields})
    return (
        f"grpcurl -plaintext -d {shlex.quote(asked)} {places.grpc}"
        " inference.GRPCInferenceService/ModelInfer"
    )


def _raw_message(inputs: Sequence[_Filled]) -> dict[str, list[Any]]:
    """The fields of a message whose tensors are bytes, in base64."""
    heads, contents = [each.head for each in inputs], [each.as_bytes() for each in inputs]
    return {
        "inputs": heads,
        "raw_input_contents": [b64encode(each).decode() for each in contents],
    }


def _stream_calls(config: ModelConfig, places: _Places) -> Iterator[str]:
    texts = [t for t in config.input if t.data_type is DataType.BYTES and not t.optional]
    if places.http and len(texts) == 1:
        body = json.dumps({texts[0].name: "Once upon a time"})
        url = f"{places.http}/v2/models/{config.name}/generate_stream"
        yield f"curl -sN {url} -d {shlex.quote(body)}"


_HALVES = {DataType.FP16: b"\x00\x3c", DataType.BF16: b"\x80\x3f"}
"""1 in the datatypes that neither JSON nor a message's own fields have."""

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
"""The field of a message that holds the elements of a datatype."""


@dataclass(frozen=True, slots=True)
class _Filled:
    """An input whose free dimensions are 1, as are its elements, or `text`."""

    name: str
    shape: list[int]
    datatype: str
    element: Any
    count: int

    @classmethod
    def of(cls, tensor: Input, config: ModelConfig) -> _Filled:
        assert tensor.data_type is not None
        rows = [1] if config.max_batch_size else []
        shape = [*rows, *(1 if size < 0 else size for size in tensor.dims)]
        element = _element(tensor.data_type)
        return cls(tensor.name, shape, tensor.data_type.value, element, prod(shape))

    @property
    def head(self) -> dict[str, Any]:
        """What is said of it beside its elements."""
        return {"name": self.name, "shape": self.shape, "datatype": self.datatype}

    def as_json(self) -> dict[str, Any]:
        """As KServe's JSON has it."""
        return {**self.head, "data": [self.element] * self.count}

    def as_program(self) -> str:
        """An expression of Python for the same."""
        return f"{{**{self.head!r}, 'data': [{self.element!r}] * {self.count}}}"

    def as_message(self) -> dict[str, Any]:
        """As grpcurl takes it; bytes in base64."""
        element = "dGV4dA==" if self.datatype == DataType.BYTES.value else self.element
        return {**self.head, "contents": {_CONTENTS[self.datatype]: [element] * self.count}}

    def as_bytes(self) -> bytes:
        """As its elements lie in memory."""
        datatype = DataType(self.datatype)
        if datatype is DataType.BYTES:
            return b"\x04\x00\x00\x00text" * self.count
        one = _HALVES.get(datatype)
        return (datatype.numpy.type(self.element).tobytes() if one is None else one) * self.count


def _element(datatype: DataType) -> Any:
    if datatype is DataType.BYTES:
        return "text"
    if datatype is DataType.BOOL:
        return True
    return 1.0 if datatype.numpy.kind == "f" else 1
