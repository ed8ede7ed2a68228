"""Requests, and what comes with them."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

from fuzz.door import JSON, NONE, OURS, PROTO, PROTOBUF, Door, Read, json_of, on_one_loop

_BINARY = b"\n--\n"
"""What stands between the JSON and the binary data of an example."""


def _infer_json(_: Path) -> Read:
    from penstock.gateway.inference.codec import decode_request
    from penstock.gateway.inference.inputs import binary_sizes
    from penstock.gateway.json.text import parse_tensors

    def read(data: bytes) -> None:
        header, _, rest = data.partition(_BINARY)
        parsed = parse_tensors(header)
        binary_sizes(parsed)
        decode_request("m", "", parsed, memoryview(rest), 1 << 20)

    return read


def _infer_jsons() -> list[bytes]:
    numbers = {"name": "X", "shape": [2, 2], "datatype": "FP32", "data": [[1, 2.5], [-3e2, 0]]}
    texts = {"name": "T", "shape": [2], "datatype": "BYTES", "data": ["a", "\u00e9"]}
    binary = {"name": "B", "shape": [2], "datatype": "INT32"}
    whole = {
        "id": "1",
        "parameters": {
            "sequence_id": 5,
            "sequence_start": True,
            "priority": 1,
            "timeout": 9,
            "x": "y",
        },
        "inputs": [numbers, texts],
        "outputs": [{"name": "Y", "parameters": {"classification": 3, "binary_data": True}}],
    }
    sized = {"inputs": [binary | {"parameters": {"binary_data_size": 8}}]}
    return [
        json.dumps(whole).encode(),
        json.dumps(sized).encode() + _BINARY + struct.pack("<2i", 1, 2),
    ]


def _generate(_: Path) -> Read:
    from penstock.gateway.inference.generate_codec import decode_generate
    from penstock.gateway.json.text import parse
    from penstock.models.serving.answers import ModelMetadata, TensorMetadata

    inputs = (
        TensorMetadata("text_input", "BYTES", (1,)),
        TensorMetadata("stream", "BOOL", (1,)),
        TensorMetadata("numbers", "INT64", (-1, 2)),
    )
    metadata = ModelMetadata("m", ("1",), "python", inputs, ())
    return lambda data: decode_generate(metadata, "", "", parse(data))


def _infer_grpc(_: Path) -> Read:
    from rpc.fuzzing.judge import compare

    return compare


def _infer_grpcs() -> list[bytes]:
    from penstock.protocol import grpc_service_pb2 as pb

    request = pb.ModelInferRequest(model_name="m", model_version="1", id="i")
    request.parameters["sequence_id"].int64_param = 3
    one = request.inputs.add(name="X", datatype="INT32", shape=[2])
    one.contents.int_contents.extend([1, -2])
    raw = pb.ModelInferRequest(model_name="m", raw_input_contents=[struct.pack("<2f", 1, 2)])
    raw.inputs.add(name="X", datatype="FP32", shape=[2])
    raw.outputs.add(name="Y").parameters["classification"].int64_param = 2
    return [request.SerializeToString(), raw.SerializeToString()]


def _elements(_: Path) -> Read:
    from penstock.core.tensor import decode_elements

    return decode_elements


def _remote(_: Path) -> Read:
    from penstock_backends.remote.kserve_messages import ResponseDecoder

    def read(data: bytes) -> None:
        decoder = ResponseDecoder(streamed=data[:1] == b"s")
        for _ in range(3):  # the second one is remembered
            decoder.decode(data[1:])

    return read


def _remotes() -> list[bytes]:
    from penstock.protocol import grpc_service_pb2 as pb

    answer = pb.ModelInferResponse(model_name="m", raw_output_contents=[bytes(16 << 10)])
    answer.outputs.add(name="Y", datatype="UINT8", shape=[16 << 10])
    typed = pb.ModelInferResponse(model_name="m")
    typed.outputs.add(name="T", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"x")
    streamed = pb.ModelStreamInferResponse(infer_response=typed)
    return [
        b"u" + answer.SerializeToString(),
        b"u" + typed.SerializeToString(),
        b"s" + streamed.SerializeToString(),
    ]


def _traceparent(_: Path) -> Read:
    from penstock.tracing.propagation import read_context

    def read(data: bytes) -> None:
        parent, state, baggage = (*data.decode("latin-1").split("\n", 2), "", "")[:3]
        headers = {"traceparent": parent, "tracestate": state, "baggage": baggage}
        read_context(headers, headers.items())

    return read


_PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/tokenize",
    "/detokenize",
)


def _openai(_: Path) -> Read:
    """A body for one of the paths, which the first byte chooses, of a scripted model."""
    from backends.openai_kit.scripted import ScriptedModel

    model = ScriptedModel()
    app = model.app()

    async def call(path: str, body: bytes) -> None:
        sent: list[MutableMapping[str, Any]] = []
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if not messages:
                await asyncio.Event().wait()
            return messages.pop()

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": headers,
            "extensions": {},
        }
        await app(scope, receive, send)
        assert sent[0]["status"] in (200, 400, 404, 413, 422, 501), sent[:2]
        model.asked.clear()
        model.steps.clear()

    return on_one_loop(lambda data: call(_PATHS[(data[:1] or b"\0")[0] % len(_PATHS)], data[1:]))


def _openais() -> list[bytes]:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}
    bodies = [
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": [{"type": "text", "text": "t"}, picture]},
                {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
                {"role": "tool", "tool_call_id": "1", "content": "x"},
            ],
            "tools": [tool],
            "tool_choice": "auto",
            "stream": True,
            "stream_options": {"include_usage": True},
            "response_format": schema,
        },
        {"prompt": ["a", "b"], "n": 2, "logprobs": 2, "stop": ["x"], "logit_bias": {"5": -1}},
        {"input": [{"role": "user", "content": "q"}], "text": {"format": {"type": "text"}}},
        {"prompt": "text", "add_special_tokens": False},
        {"tokens": [1, 2]},
    ]
    return [bytes([at]) + json.dumps(body).encode() for at, body in enumerate(bodies)]


DOORS = {
    "infer-json": Door(_infer_json, _infer_jsons, OURS, (*JSON, _BINARY)),
    "generate": Door(
        _generate,
        json_of(
            {
                "text_input": "a",
                "stream": True,
                "numbers": [1, 2],
                "id": "1",
                "parameters": {"x": 1},
            }
        ),
        OURS,
        JSON,
    ),
    "infer-grpc": Door(_infer_grpc, _infer_grpcs, NONE, PROTO),
    "elements": Door(_elements, lambda: [b"\1\0\0\0a\0\0\0\0"], OURS, (b"\xff" * 4,)),
    "remote": Door(_remote, _remotes, PROTOBUF, PROTO, 1500),
    "traceparent": Door(
        _traceparent,
        lambda: [b"00-%s-%s-01\na=b,c@d=e\nk=v;p,x=y" % (b"1" * 32, b"2" * 16)],
        NONE,
        (b",", b"=", b";", b"-", b"\t"),
    ),
    "openai": Door(_openai, _openais, NONE, JSON, 600),
}
