"""Responses as the generate endpoints send them: the members of one JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.core.errors import DeadlineExceededError, ExhaustedError, InferenceError
from penstock.core.request import (
    TEXT_OUTPUT,
    InferenceRequest,
    InferenceResponse,
    TextResponse,
)
from penstock.core.tensor import Tensor
from penstock.gateway.inference.codec import wanted_outputs
from penstock.gateway.json.tensors import SHORT_TEXT, is_short, tensor_to_json, tensor_to_text
from penstock.gateway.json.text import dump, dump_sorted
from penstock.gateway.replies import http_status

_BEFORE_TEXT = len('{"":')
"""Where the text begins in an object with a member that has no name."""


class Answer(NamedTuple):
    """A response as JSON, with the HTTP status to use if it is the first."""

    json: bytes
    status: int = 200


def answer_of(
    request: InferenceRequest, version: str, response: InferenceResponse
) -> Answer | None:
    """The answer of a response; `None` if it takes long, see `answer_of_large`.

    Outputs, parameters and names are in one object; one element stands without a list.
    """
    try:
        if response.error is not None:
            raise response.error
        outputs = wanted_outputs(request, response)
        if not all(map(is_short, outputs.values())):
            return None
        members = _members(outputs)
        return Answer(dump_sorted(_with_names(members, request, version, response)))
    except InferenceError as error:
        return failure(error)


class TextAnswers:
    """The answers of the responses to one request that hold a text only: encodes the rest once."""

    __slots__ = ("_head", "_request", "_version")

    def __init__(self, request: InferenceRequest, version: str) -> None:
        self._request = request
        self._version = version
        self._head = b""

    def json_of(self, response: TextResponse) -> bytes | None:
        """The JSON of `answer_of`, in less time; `None` for a text that takes long."""
        if len(response.text) > SHORT_TEXT:
            return None
        if not self._head:
            names = _with_names({}, self._request, self._version, response)
            self._head = b'%b,"%b":' % (dump_sorted(names)[:-1], TEXT_OUTPUT.encode())
        text = dump_sorted({"": response.text.decode("utf-8", "surrogateescape")})
        return self._head + text[_BEFORE_TEXT:]


async def answer_of_large(
    request: InferenceRequest, version: str, response: InferenceResponse
) -> Answer:
    """As `answer_of`, of any size: the event loop has its turns meanwhile."""
    try:
        if response.error is not None:
            raise response.error
        outputs = wanted_outputs(request, response)
        large = {
            name: await tensor_to_text(name, tensor)
            for name, tensor in outputs.items()
            if not is_short(tensor)
        }
        members = _members({name: one for name, one in outputs.items() if name not in large})
        members = _with_names(members, request, version, response)
        texts = {name: [dump(value)] for name, value in members.items()} | large
        parts = [part for name in sorted(texts) for part in (b",", dump(name), b":", *texts[name])]
        return Answer(b"".join((b"{", *parts[1:], b"}")))
    except InferenceError as error:
        return failure(error)


def failure(error: InferenceError) -> Answer:
    """The answer of a request that failed after its admission: 400 in Triton, mostly."""
    own = isinstance(error, DeadlineExceededError | ExhaustedError)
    return Answer(dump_sorted({"error": error.message}), http_status(error) if own else 400)


def _members(outputs: Mapping[str, Tensor]) -> dict[str, Any]:
    members: dict[str, Any] = {}
    for name, tensor in outputs.items():
        elements = tensor_to_json(name, tensor)
        members[name] = elements[0] if len(elements) == 1 else elements
    return members


def _with_names(
    members: dict[str, Any], request: InferenceRequest, version: str, response: InferenceResponse
) -> dict[str, Any]:
    members |= response.parameters
    members |= {"id": request.id} if request.id else {}
    members |= {"model_name": request.model_name, "model_version": version}
    return members
