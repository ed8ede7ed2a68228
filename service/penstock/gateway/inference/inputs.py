"""Decoder of the input tensors of an inference request, from JSON, binary data or shared memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from penstock.core.errors import InvalidRequestError, request_prefix, shortened
from penstock.core.request_limits import check_dimensions, check_inputs
from penstock.core.tensor import DataType, Tensor
from penstock.gateway.inference.body_memory import Place, nowhere
from penstock.gateway.json.fields import (
    ABSENT,
    as_list,
    as_string,
    as_unsigned,
    member,
    required,
    unable,
)
from penstock.gateway.json.number_lists import NumberList
from penstock.gateway.json.tensors import tensor_from_json
from penstock.gateway.shared_memory import RegionSlices, RemoteSlice, shared_slice
from penstock.shared_memory.tensors import tensor_in

_DATATYPES = {datatype.value: datatype for datatype in DataType if datatype is not DataType.INVALID}
_MOST_BYTES = (1 << 64) - 1
"""Bytes of a tensor that an error text tells: shapes may have products of thousands of digits."""

_SOURCES = ("binary_data_size", "shared_memory_region")


BinarySizes = list[tuple[str, int]] | None
"""Names of the binary inputs, and their sizes in bytes; `None` where one is invalid."""


class InputReader:
    """Reads the inputs of one request of `model`; `rest` is the binary data behind the JSON.

    `limit` bounds the bytes of all tensors in the JSON, whose text may be shorter (H-36);
    `regions` holds the shared memory that inputs may be in, `place` tells where the binary data is.
    """

    def __init__(
        self,
        model: str,
        request_id: str,
        rest: memoryview,
        limit: int,
        regions: RegionSlices,
        place: Place = nowhere,
    ) -> None:
        self._model = model
        self._regions = regions
        self._request_id = request_id
        self._rest = rest
        self._limit = limit
        self._taken = 0
        self._place = place
        self._at = 0  # in the binary data

    def read(self, items: list[Any]) -> dict[str, Tensor]:
        """The tensors by name. Raises if binary data is left over."""
        check_inputs(items)
        inputs: dict[str, Tensor] = {}
        for item in items:
            _check_sources(item)
            name, datatype, shape = _description(item)
            refuse_duplicate(inputs, name, self._request_id)
            inputs[name] = self._tensor(name, datatype, shape, item)
        if len(self._rest):
            raise _left_over(self._model)
        return inputs

    def _tensor(self, name: str, datatype: DataType, shape: Sequence[int], item: Any) -> Tensor:
        parameters = member(item, "parameters")
        size = member(parameters, "binary_data_size")
        if (place := shared_slice(parameters, self._regions)) is not None:
            if isinstance(place, RemoteSlice):
                return Tensor(datatype, shape, b"", place)
            return tensor_in(place, datatype, shape)
        if size is not ABSENT:
            begin = self._at
            taken = self._read_bytes(name, as_unsigned(size, unable("binary_data_size")))
            return Tensor(datatype, shape, taken, self._place(begin, taken))
        count = prod(shape) if shape else 0
        if not count:
            return Tensor(datatype, shape, b"")
        self._count_bytes(name, min(count * datatype.itemsize, _MOST_BYTES))
        data = required(item, "data")
        if not isinstance(data, NumberList):
            data = as_list(data, unable("data"))
        return tensor_from_json(name, datatype, shape, data, count)

    def _read_bytes(self, name: str, size: int) -> memoryview:
        missing = size - len(self._rest)
        if missing > 0:
            raise _too_short(name, missing, self._model)
        taken, self._rest = self._rest[:size], self._rest[size:]
        self._at += size
        return taken

    def _count_bytes(self, name: str, size: int) -> None:
        self._taken += size
        if self._taken > self._limit:
            raise InvalidRequestError(
                f"request size of {self._taken} bytes with input '{shortened(name)}'"
                f" of size {size} bytes"
                f" exceeds the maximum allowed input size of {self._limit}."
                " Use --http-max-input-size to increase the limit."
            )


def binary_sizes(request: Any) -> BinarySizes:
    """Names of the inputs of a request in JSON that are binary, and their sizes in bytes.

    `None` if a description is invalid: `InputReader` then raises the error.
    """
    given = member(request, "inputs")
    sizes = []
    for item in given if isinstance(given, list) else []:
        name, size = member(item, "name"), member(member(item, "parameters"), "binary_data_size")
        if size is ABSENT:
            continue
        if not (isinstance(name, str) and type(size) is int and size >= 0):
            return None
        sizes.append((name, size))
    return sizes


def check_binary_sizes(sizes: Sequence[tuple[str, int]], available: int, model: str) -> None:
    """Raise if so many bytes of binary data are too few or too many for these inputs (HI-08)."""
    for name, size in sizes:
        if size > available:
            raise _too_short(name, size - available, model)
        available -= size
    if available:
        raise _left_over(model)


def _too_short(name: str, missing: int, model: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"unexpected size for input '{shortened(name)}', expecting {missing} additional bytes"
        f" for model '{model}'"
    )


def _left_over(model: str) -> InvalidRequestError:
    return InvalidRequestError(f"unexpected additional input data for model '{model}'")


def refuse_duplicate(inputs: Mapping[str, Tensor], name: str, request_id: str) -> None:
    """Raise if an input of this name exists."""
    if name in inputs:
        raise InvalidRequestError(
            f"{request_prefix(request_id)}input '{shortened(name)}' already exists in request"
        )


def _description(item: Any) -> tuple[str, DataType, list[int]]:
    name = as_string(required(item, "name"), unable("name"))
    datatype = as_string(required(item, "datatype"), unable("datatype"))
    shape = as_list(required(item, "shape"), unable("shape"))
    check_dimensions(name, shape)
    sizes = [as_unsigned(size, unable("shape")) for size in shape]
    return name, _DATATYPES.get(datatype, DataType.INVALID), sizes


def _check_sources(item: Any) -> None:
    """Check that an input has exactly one source of data (contract HI-04)."""
    parameters = member(item, "parameters")
    given = ["data"] if member(item, "data") is not ABSENT else []
    given += [key for key in _SOURCES if member(parameters, key) is not ABSENT]
    if len(given) != 1:
        found = "set " + " ".join(f"'{key}'" for key in given) if given else "no field is set"
        raise InvalidRequestError(
            "Input must set only one of the following fields: 'data', 'binary_data_size' in"
            f" 'parameters', 'shared_memory_region' in 'parameters'. But {found}"
        )
