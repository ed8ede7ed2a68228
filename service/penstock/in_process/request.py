"""`InferenceRequest`: what a caller asks of a model."""

from __future__ import annotations

import asyncio
import queue
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.core.request import InferenceRequest as CoreRequest
from penstock.core.request import text_correlation_id
from penstock.in_process.enums import RequestFlag
from penstock.in_process.errors import InvalidArgumentError, translated
from penstock.in_process.tensor import (
    DeviceOrMemoryType,
    Tensor,
    core_tensor,
    parse_memory_type,
)

ResponseQueue = queue.SimpleQueue[Any] | asyncio.Queue[Any]


class NamedModel(Protocol):
    """A model, or one version of it; -1 is any."""

    name: str
    version: int


@dataclass
class InferenceRequest:
    """A request to a model.

    `inputs` are tensors, arrays, lists, or objects with DLPack support, by name. `timeout` is in
    microseconds. `flags` are those of `RequestFlag`. Responses also go to `response_queue`: a
    `queue.SimpleQueue` for `infer`, an `asyncio.Queue` for `async_infer`.
    """

    model: NamedModel
    request_id: str | None = None
    flags: int = 0
    correlation_id: int | str | None = None
    priority: int = 0
    timeout: int = 0
    inputs: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, str | int | bool | float] = field(default_factory=dict)
    output_memory_type: DeviceOrMemoryType | None = None
    output_memory_allocator: Any = None
    response_queue: ResponseQueue | None = None


def core_request(request: InferenceRequest) -> CoreRequest:
    """The request as the server has it; raises `InvalidArgumentError`, `UnsupportedError`."""
    if request.output_memory_type is not None:
        parse_memory_type(request.output_memory_type)
    if request.output_memory_allocator is not None:
        raise InvalidArgumentError(
            "output_memory_allocator must be None: outputs are in memory of the server's choice"
        )
    for name, value in request.parameters.items():
        if not isinstance(value, str | int | bool | float):
            raise InvalidArgumentError(
                f"Unsupported Value. Can't convert {type(value)} to Request Parameter: '{name}'"
            )
    correlation_id = request.correlation_id or 0
    with translated():
        if isinstance(correlation_id, str):
            correlation_id = text_correlation_id(correlation_id)
    version = request.model.version
    return CoreRequest(
        model_name=request.model.name,
        model_version="" if version < 0 else str(version),
        id=request.request_id or "",
        inputs={n: core_tensor(Tensor.from_object(v)) for n, v in request.inputs.items()},
        parameters=dict(request.parameters),
        priority=request.priority,
        timeout=request.timeout,
        correlation_id=correlation_id,
        sequence_start=bool(request.flags & RequestFlag.SEQUENCE_START),
        sequence_end=bool(request.flags & RequestFlag.SEQUENCE_END),
    )
