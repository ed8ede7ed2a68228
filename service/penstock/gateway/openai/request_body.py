"""The part of a request to OpenAI's API that the server reads: its model, and no more."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs

from penstock.core.errors import InferenceError, shortened
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.json.members import RepeatedMembers
from penstock.gateway.json.scan import TooManyValuesError
from penstock.gateway.json.text import dump
from penstock.gateway.json_bodies import JsonBodies
from penstock.gateway.openai.errors import OpenAiError

_FORM_NAME: Final = b'name="model"'
_LONGEST_HEAD: Final = 1024
"""Bytes of the rest of the head of a form's part."""

_CHAT_LENGTHS: Final = ("max_completion_tokens", "max_tokens")
_LENGTHS: Final = {
    "/v1/chat/completions": _CHAT_LENGTHS,
    "/v1/chat/completions/batch": _CHAT_LENGTHS,
    "/v1/completions": ("max_tokens",),
    "/v1/responses": ("max_output_tokens",),
}
"""The fields by which a request limits its answer, by path; the first gets the default."""

_LONGEST_NAME: Final = 512

_STORED: Final = re.compile(r"/v1/responses/resp_[0-9a-f]{32}_((?:[0-9a-f]{2})+)(?:/cancel)?")
"""The path of a response that vLLM has stored, whose id ends with the model's name."""


class RequestBody(NamedTuple):
    """A body as it came, and the model that it names.

    `form_value` is where a form has that name: its first byte, and the one behind it. `limited`
    says that the length of the answer is the server's word, not the client's; `streamed` that the
    client wants a stream of events.
    """

    model: str
    body: bytes
    form_value: tuple[int, int] | None = None
    limited: bool = False
    streamed: bool = False

    def renamed(self, model: str) -> RequestBody:
        """The body with another name in the place of an alias."""
        if not self.body:
            return RequestBody(model, self.body)
        if self.form_value is None:
            body = _with_member(self.body, "model", dump(model))
            return self._replace(model=model, body=body)
        start, end = self.form_value
        return RequestBody(model, self.body[:start] + model.encode() + self.body[end:])


class RequestBodies:
    """Reads bodies of up to the limit; `default_length` goes into those that set none (OA-14)."""

    def __init__(self, bodies: JsonBodies, default_length: int = 0) -> None:
        self._bodies = bodies
        self._default_length = default_length

    async def read(self, call: HttpCall) -> RequestBody:
        """The body and its model, or that of the query where there is no body.

        Raises `OpenAiError`.
        """
        if call.method == "GET" or call.body.declared == 0:
            return RequestBody(_query_model(call), b"")
        body = await self._whole(call)
        if not body:
            return RequestBody(_query_model(call), b"")
        if call.headers.get("content-type", "").lower().startswith("multipart/form-data"):
            return _form_body(body)
        wanted = _LENGTHS.get(call.path, ()) if self._default_length else ()
        try:
            model, limited, streamed = await self._bodies.decode(
                body, partial(_fields, wanted), call
            )
        except TooManyValuesError as error:
            raise OpenAiError(error.message, 413, code="content_too_large") from error
        except InferenceError as error:
            text = f"the body is not JSON: {error.message}"
            raise OpenAiError(text, code="invalid_json") from error
        if not wanted or limited:
            return RequestBody(model, body, streamed=streamed)
        body = _with_member(body, wanted[0], b"%d" % self._default_length)
        return RequestBody(model, body, limited=True, streamed=streamed)

    async def _whole(self, call: HttpCall) -> bytes:
        limit = self._bodies.limit
        if call.headers.get("content-encoding", "identity") not in ("", "identity"):
            raise OpenAiError("Unsupported content-encoding, only 'identity' is supported.")
        declared = call.body.declared
        if declared is None or declared <= limit:
            body = await call.body_until(limit + 1)
            if len(body) <= limit:
                return bytes(body)
        raise OpenAiError(
            f"the body is larger than {limit} bytes; --http-max-input-size increases the limit",
            413,
            code="content_too_large",
        )


def _fields(lengths: tuple[str, ...], json: Any) -> tuple[str, bool, bool]:
    """The model of a request, whether it limits its answer, and whether it wants a stream."""
    if not isinstance(json, Mapping):
        raise OpenAiError("the body must be a JSON object", code="invalid_json")
    if isinstance(json, RepeatedMembers) and json.names.count("model") > 1:
        # Of equal names the first counts here, and the last in engines.
        raise OpenAiError("'model' must be given once", param="model")
    limited = any(json.get(name) is not None for name in lengths)
    return _checked(json.get("model")), limited, json.get("stream") is True


def _with_member(body: bytes, name: str, value: bytes) -> bytes:
    """The object with one more member, which counts where one of that name is before it."""
    end = body.rindex(b"}")
    return b'%b,"%b":%b%b' % (body[:end], name.encode(), value, body[end:])


def _form_body(body: bytes) -> RequestBody:
    """A form and its field; searched for without a parser, as forms hold long files."""
    at = body.find(_FORM_NAME)
    start = body.find(b"\r\n\r\n", at, at + _LONGEST_HEAD) + 4 if at >= 0 else 3
    end = body.find(b"\r\n", start, start + 1 + _LONGEST_NAME) if start > 3 else -1
    name = _checked(body[start:end].decode("utf-8", "replace") if end >= 0 else None)
    return RequestBody(name, body, (start, end))


def _query_model(call: HttpCall) -> str:
    found = parse_qs(call.head.query.decode("latin-1")).get("model")
    if not found and (stored := _STORED.fullmatch(call.path)):
        found = [bytes.fromhex(stored[1]).decode("utf-8", "replace")]
    if not found:
        raise OpenAiError("add the model's name to the path: ?model=NAME", param="model")
    return _checked(found[0])


def _checked(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise OpenAiError("you must provide a model parameter", param="model")
    if len(name) > _LONGEST_NAME:
        text = f"Unknown model: {shortened(name)}"
        raise OpenAiError(text, 404, param="model", code="model_not_found")
    return name
