"""Asks a server what was asked of the real one, and compares the answers.

What differs by nature is not compared: server name and version, times, addresses in memory.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict

from penstock.protocol import grpc_service_pb2 as pb

_SERVICE = "/inference.GRPCInferenceService/"
_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Case:
    """One question to the real server and its answer."""

    file: str
    name: str
    recorded: Mapping[str, Any]

    @property
    def model(self) -> str:
        """The model that it is about, if any."""
        asked = self.recorded.get("request") or (self.recorded.get("requests") or [{}])[0] or {}
        if "path" in self.recorded:
            found = re.match(r"/v2/models/([^/]+)", self.recorded["path"])
            return found.group(1) if found else ""
        return str(asked.get("model_name") or asked.get("name") or "")


def cases(path: Path) -> Iterator[Case]:
    """The cases of one file."""
    for name, recorded in json.loads(path.read_text()).items():
        yield Case(path.stem, name, recorded)


class Peer:
    """A server to be asked."""

    def __init__(self, grpc_target: str, http_target: str, repository: Path) -> None:
        self._channel = grpc.insecure_channel(
            grpc_target, options=[("grpc.max_receive_message_length", -1)]
        )
        self._http = http_target
        self.repository = repository

    def difference(self, case: Case) -> str | None:
        """How the answer differs from the recorded one; `None` when it does not."""
        recorded = case.recorded
        if "path" in recorded:
            expected, got = _http_expected(recorded), self._ask_http(recorded)
        elif recorded["rpc"] == "ModelStreamInfer":
            expected, got = _stream_expected(recorded), self._ask_stream(recorded)
        else:
            expected, got = _unary_expected(recorded), self._ask_unary(recorded)
        expected, got = self._placed(expected), _masked(got)
        return None if expected == got else f"expected {expected}\n     got {got}"

    def _ask_unary(self, recorded: Mapping[str, Any]) -> Any:
        rpc = recorded["rpc"]
        request, response = getattr(pb, f"{rpc}Request"), getattr(pb, f"{rpc}Response")
        call = self._channel.unary_unary(
            _SERVICE + rpc,
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        message = _message(recorded.get("request") or {}, request())
        # A short limit where the recording ran into one; it is what was recorded, of a model that
        # takes 0.6 s.
        timeout = 0.2 if recorded["code"] == "DEADLINE_EXCEEDED" else _TIMEOUT
        try:
            answer = call(message, timeout=timeout, metadata=_metadata(recorded))
        except grpc.RpcError as error:
            return {"code": error.code().name, "message": error.details()}
        return {"code": "OK", "response": _dict(answer)}

    def _ask_stream(self, recorded: Mapping[str, Any]) -> Any:
        call = self._channel.stream_stream(
            _SERVICE + "ModelStreamInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        requests = [_message(r, pb.ModelInferRequest()) for r in recorded["requests"] or []]
        answers = call(iter(requests), timeout=_TIMEOUT, metadata=_metadata(recorded))
        seen: list[Any] = []
        try:
            seen += map(_dict, answers)
        except grpc.RpcError as error:
            return {"code": error.code().name, "message": error.details(), "responses": seen}
        return {"code": "OK", "responses": seen}

    def _ask_http(self, recorded: Mapping[str, Any]) -> Any:
        host, _, port = self._http.partition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=_TIMEOUT)
        body = recorded.get("body")
        data = body.encode() if isinstance(body, str) else body
        if isinstance(data, dict):
            data = base64.b64decode(data["base64"])
        connection.request(recorded["method"], recorded["path"], data, dict(recorded["headers"]))
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return {"status": answer.status, "reply": _reply(text)}

    def _placed(self, value: Any) -> Any:
        """The recorded value with this server's paths, and without the other's own frames."""
        text = FOREIGN_FRAMES.sub("", json.dumps(value))
        return _masked(json.loads(text.replace("$REPO", str(self.repository))))


def _unary_expected(recorded: Mapping[str, Any]) -> Any:
    if recorded["code"] != "OK":
        return {"code": recorded["code"], "message": recorded["message"]}
    return {"code": "OK", "response": recorded.get("response", {})}


def _stream_expected(recorded: Mapping[str, Any]) -> Any:
    expected = {"code": recorded["code"], "responses": recorded["responses"]}
    if recorded["code"] != "OK":
        expected["message"] = recorded["message"]
    return expected


def _http_expected(recorded: Mapping[str, Any]) -> Any:
    reply = recorded.get("reply", "")
    if isinstance(reply, dict) and list(reply) == ["base64"]:
        reply = _reply(base64.b64decode(reply["base64"]))
    return {"status": recorded["status"], "reply": reply}


def _reply(text: bytes) -> Any:
    """A body as far as it can be read: inflated, as JSON, as text with binary tensors behind."""
    for inflate in (gzip.decompress, zlib.decompress):
        with suppress(OSError, zlib.error):
            text = inflate(text)
    try:
        return json.loads(text)
    except ValueError:
        return text.decode("latin-1")


def _message(request: Mapping[str, Any], message: Any) -> Any:
    known = {key: value for key, value in request.items() if key != "raw_input_contents_bytes"}
    return ParseDict(known, message)


def _metadata(recorded: Mapping[str, Any]) -> tuple[tuple[str, str | bytes], ...]:
    return tuple((key, value) for key, value in recorded.get("metadata", ()))


def _dict(message: Any) -> Any:
    return MessageToDict(message, preserving_proto_field_name=True)


FOREIGN_FRAMES = re.compile(r"  (?:\$WORK/venv|<frozen importlib)[^\\]*\\n")
"""Lines of tracebacks that name files of the installation, as they are in JSON."""

_VARYING = (
    (re.compile(r'"version": "[0-9.]+(\w*)"'), '"version": "*"'),
    (re.compile(r'"last_inference": "?\d+"?'), '"last_inference": "*"'),
    (re.compile(r'(, )?"ns": "?\d+"?'), ""),  # a time of zero is not there at all
    (re.compile(r"0x[0-9a-f]+"), "0x*"),
)


def _masked(value: Any) -> Any:
    text = json.dumps(value)
    for pattern, mask in _VARYING:
        text = pattern.sub(mask, text)
    return json.loads(text)
