"""Batch execution: requests are prepared one by one, run together, and get their rows back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from penstock.backend import (
    Array,
    DataType,
    InferenceError,
    InferenceRequest,
    InferenceResponse,
    InternalError,
    Outcome,
    Tensor,
    UnavailableError,
)

Prepared = TypeVar("Prepared")


def answer_each(
    requests: Sequence[InferenceRequest],
    prepare: Callable[[InferenceRequest], Prepared],
    run: Callable[[list[InferenceRequest], list[Prepared]], list[InferenceResponse]],
) -> list[Outcome]:
    """Prepare each request, then run the valid ones together; an invalid one fails alone."""
    outcomes: list[Outcome | None] = []
    ready: list[InferenceRequest] = []
    prepared: list[Prepared] = []
    for request in requests:
        try:
            prepared.append(prepare(request))
            ready.append(request)
            outcomes.append(None)
        except InferenceError as error:
            outcomes.append(error)
    answers = iter(_run(ready, prepared, run))
    return [next(answers) if outcome is None else outcome for outcome in outcomes]


def _run(
    requests: list[InferenceRequest],
    prepared: list[Prepared],
    run: Callable[[list[InferenceRequest], list[Prepared]], list[InferenceResponse]],
) -> Sequence[Outcome]:
    if not requests:
        return []
    try:
        return run(requests, prepared)
    except (InternalError, UnavailableError) as error:
        return [type(error)(error.message) for _ in requests]


def wanted(requests: Sequence[InferenceRequest], outputs: Sequence[str]) -> list[str]:
    """The outputs to compute: all, unless every request names some."""
    asked: set[str] = set()
    for request in requests:
        if not request.requested_outputs:
            return [*outputs]
        asked.update(request.requested_outputs)
    return [name for name in outputs if name in asked]


def by_rows(name: str, array: Array, rows: Sequence[int]) -> list[Array]:
    """Each request's rows of an output, as views. A single request gets all of it."""
    if len(rows) == 1:
        return [array]
    ends = np.cumsum(rows).tolist()
    if array.shape[:1] != (ends[-1],):
        raise InternalError(
            f"failed to split the output tensor '{name}' in responses: expected {ends[-1]} rows "
            f"in model output, got shape {list(array.shape)}"
        )
    return [array[end - count : end] for count, end in zip(rows, ends, strict=True)]


def responses(
    requests: Sequence[InferenceRequest], outputs: Mapping[str, tuple[DataType, Sequence[Array]]]
) -> list[InferenceResponse]:
    """The responses, from each output's arrays in the order of the requests.

    Raises `InternalError` for an engine that answers in another datatype than it announced.
    """
    for name, (datatype, arrays) in outputs.items():
        if requests and not _is(datatype, arrays[0]):
            came = getattr(arrays[0], "dtype", type(arrays[0]).__name__)
            raise InternalError(f"output '{name}' came as {came}, and is {datatype.name}")
    return [_response(request, at, outputs) for at, request in enumerate(requests)]


def _is(datatype: DataType, array: object) -> bool:
    """Whether the array holds elements of this datatype, since clients read them as that."""
    kind: np.dtype[Any] | None = getattr(array, "dtype", None)
    if kind is None:
        return False
    if datatype is DataType.BYTES:
        return kind.kind in "OSU"
    if datatype is DataType.BF16:
        return kind.itemsize == 2  # bit patterns, or numbers of `ml_dtypes`
    return kind == datatype.numpy


def _response(
    request: InferenceRequest, at: int, outputs: Mapping[str, tuple[DataType, Sequence[Array]]]
) -> InferenceResponse:
    asked = request.requested_outputs or outputs
    return InferenceResponse(
        {
            name: Tensor.from_numpy(arrays[at], datatype)
            for name, (datatype, arrays) in outputs.items()
            if name in asked
        }
    )
