"""Decoder of generate requests: members named like inputs are tensors, others parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.core.errors import InferenceError, InvalidRequestError
from penstock.core.request import InferenceRequest, ParameterValue
from penstock.core.request_limits import check_parameters
from penstock.core.tensor import DataType, Tensor
from penstock.gateway.inference.codec import read_id
from penstock.gateway.inference.inputs import refuse_duplicate
from penstock.gateway.json.fields import as_object, as_parameter, members_of
from penstock.gateway.json.members import names_of
from penstock.gateway.json.tensors import tensor_from_json
from penstock.models.serving.answers import ModelMetadata, TensorMetadata

_NESTED = "parameters"
_ID = "id"
"""The member that is the request's id: a parameter only where it is nested."""


def decode_generate(
    metadata: ModelMetadata, version: str, json: Any, request_id: str = ""
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
    )


class _SchemaMapping:
    """Sorts the members of one request into tensors and parameters."""

    def __init__(self, metadata: ModelMetadata, request_id: str) -> None:
        self.request_id = request_id
        self.inputs: dict[str, Tensor] = {}
        self.parameters: dict[str, ParameterValue] = {}
        self._known = {tensor.name: tensor for tensor in metadata.inputs}

    def convert(self, members: dict[str, Any]) -> None:
        for key in names_of(members):
            if key == _NESTED:
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
