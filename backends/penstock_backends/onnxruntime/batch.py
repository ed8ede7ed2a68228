"""A batch: requests prepared one by one, run together, and their rows handed back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from penstock.core.backend import Outcome
from penstock.core.errors import InferenceError, InternalError
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import Array, DataType, Tensor

Prepared = TypeVar("Prepared")

_to_bytes = np.frompyfunc(str.encode, 1, 1)


def answer_each(
    requests: Sequence[InferenceRequest],
    prepare: Callable[[InferenceRequest], Prepared],
    run: Callable[[list[InferenceRequest], list[Prepared]], list[InferenceResponse]],
) -> list[Outcome]:
    """Prepare every request, then run together those that could be; a bad one harms no other."""
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
    except InternalError as error:
        return [InternalError(error.message) for _ in requests]


def wanted(requests: Sequence[InferenceRequest], outputs: Sequence[str]) -> list[str]:
    """The outputs to compute: all, unless every request asks for some."""
    asked: set[str] = set()
    for request in requests:
        if not request.requested_outputs:
            return [*outputs]
        asked.update(request.requested_outputs)
    return [name for name in outputs if name in asked]


def responses(
    requests: Sequence[InferenceRequest],
    rows: Sequence[int],
    outputs: Mapping[str, tuple[DataType, Array]],
) -> list[InferenceResponse]:
    """Each request's rows of `outputs`, as views. One request gets everything."""
    if len(requests) == 1:
        return [_response(requests[0], outputs, slice(None))]
    total = sum(rows)
    for name, (_, array) in outputs.items():
        if array.shape[:1] != (total,):
            raise InternalError(
                f"failed to split the output tensor '{name}' in responses: expected {total} rows "
                f"in model output, got shape {list(array.shape)}"
            )
    ends = np.cumsum(rows).tolist()
    return [
        _response(request, outputs, slice(end - count, end))
        for request, count, end in zip(requests, rows, ends, strict=True)
    ]


def _response(
    request: InferenceRequest, outputs: Mapping[str, tuple[DataType, Array]], rows: slice
) -> InferenceResponse:
    asked = request.requested_outputs or outputs
    return InferenceResponse(
        {
            name: _tensor(datatype, array[rows] if array.ndim else array)
            for name, (datatype, array) in outputs.items()
            if name in asked
        }
    )


def _tensor(datatype: DataType, array: Array) -> Tensor:
    if datatype is DataType.BYTES:
        array = np.asarray(_to_bytes(array), np.object_)
    return Tensor.from_numpy(array, datatype)
