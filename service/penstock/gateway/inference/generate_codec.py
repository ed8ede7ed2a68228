"""Codec of the generate endpoints: members of a JSON object, named like tensors, or parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.core.errors import (
    DeadlineExceededError,
    ExhaustedError,
    InferenceError,
    InvalidRequestError,
)
from penstock.core.request import (
    TEXT_OUTPUT,
    InferenceRequest,
    InferenceResponse,
    ParameterValue,
    RequestScope,
    TextResponse,
)
from penstock.core.request_limits import check_parameters
from penstock.core.tensor import DataType, Tensor
from penstock.gateway.inference.codec import read_id, wanted_outputs
from penstock.gateway.inference.inputs import refuse_duplicate
from penstock.gateway.json.fields import as_object, as_parameter, members_of
from penstock.gateway.json.members import names_of
from penstock.gateway.json.tensors import (
    SHORT_TEXT,
    is_short,
    tensor_from_json,
    tensor_to_json,
    tensor_to_text,
)
from penstock.gateway.json.text import dump, dump_sorted
from penstock.gateway.replies import http_status
from penstock.models.serving.answers import ModelMetadata, TensorMetadata

_NESTED = "parameters"
_ID = "id"
"""The member that is the request's id: a parameter only where it is nested."""


def decode_generate(
    metadata: ModelMetadata, version: str, request_id: str, json: Any
) -> InferenceRequest:
    """Decode a parsed body (HG-01 to HG-05); `request_id` applies if the body has no id."""
    mapping = _SchemaMapping(metadata, read_id(json))
    mapping.convert(members_of(json))
    check_parameters(mapping.parameters)
    return InferenceRequest(
        model_name=metadata.name,
        model_version=version,
        id=mapping.request_id or request_id,
        inputs=mapping.inputs,
        parameters=mapping.parameters,
        scope=RequestScope(),
    )


class _SchemaMapping:
    """Sorts the members of one request into tensors and parameters."""

    def __init__(self, metadata: ModelMetadata, request_id: str) -> None:
        self.request_id = request_id
        self.inputs: dict[str, Tensor] = {}
        self.parameters: dict[str, ParameterValue] = {}
        self._known = {tensor.name: tensor for tensor in metadata.inputs}

    def convert(self, members: dict[str, Any]) -> None:
        nested = 0
        for key in names_of(members):
            if key == _NESTED:
                nested += 1
                if nested <= 2:  # what the second brings, an input twice, any further one does
                    self._convert_nested(members[key])
            elif key != _ID or key in self._known:
                self._convert_member(key, members[key])

    def _convert_nested(self, value: Any) -> None:
        if _NESTED in self._known:
            raise InvalidRequestError(
                f"Keyword '{_NESTED}' for nested schema also given as input tensor name"
            )
        members = as_object(value, f"Expected JSON object for keyword: '{_NESTED}': ")
        try:
            for key in names_of(members):
                self._convert_member(key, members[key])
        except InferenceError as error:
            raise type(error)(f"Converting keyword: '{_NESTED}': {error}") from error

    def _convert_member(self, key: str, value: Any) -> None:
        known = self._known.get(key)
        if known is None:
            self.parameters[key] = as_parameter(key, value)
            return
        tensor = _tensor(known, value)
        refuse_duplicate(self.inputs, key, self.request_id)
        self.inputs[key] = tensor


def _tensor(known: TensorMetadata, value: Any) -> Tensor:
    """One value, or a list of them, in the shape of an input (HG-03)."""
    elements = value if isinstance(value, list) else [value]
    shape = _fitted(known, len(elements))
    return tensor_from_json(known.name, DataType(known.datatype), shape, elements, len(elements))


def _fitted(known: TensorMetadata, count: int) -> Sequence[int]:
    """The shape that holds `count` elements: other variable dimensions are 1, the last the rest."""
    shape = list(known.shape)
    for size in shape:
        if size != -1:
            count, rest = divmod(count, size)
            if rest:
                raise _no_fit(known)
    for at in reversed(range(len(shape))):
        if shape[at] == -1:
            shape[at], count = count, 1
    if count != 1:
        raise _no_fit(known)
    return shape


def _no_fit(known: TensorMetadata) -> InvalidRequestError:
    return InvalidRequestError(
        f"The schema can not convert input '{known.name}' to tensor with proper shape"
    )


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
