"""`RepeatBackend`: the elements of IN, one response each, DELAY milliseconds apart (DC-09)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import numpy as np

from penstock.backend import (
    Backend,
    ConfigError,
    DataType,
    InferenceRequest,
    InferenceResponse,
    Input,
    InstanceContext,
    InvalidRequestError,
    ModelConfig,
    Outcome,
    Output,
    Tensor,
    Traits,
    WithMetrics,
)

_INPUTS = {"IN": DataType.INT32, "DELAY": DataType.UINT32, "WAIT": DataType.UINT32}
_OUTPUTS = {"OUT": DataType.INT32, "IDX": DataType.UINT32}


class RepeatBackend(WithMetrics, Backend):
    """Sends IN[i] as OUT and i as IDX, DELAY[i] milliseconds after the response before it.

    WAIT is the time in milliseconds from a request's start until the instance is free: it delays
    the next request, but no response of this one. `cancelled` counts requests whose client left
    before the last response.
    """

    traits = Traits(eager=True)

    def __init__(self) -> None:
        self.cancelled = 0
        self._free_at = 0.0

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        if config.max_batch_size:
            raise ConfigError("repeat backend only supports models with max_batch_size == 0")
        if not config.decoupled:
            raise ConfigError(
                "repeat backend needs model_transaction_policy { decoupled: true }, "
                "since a request gets as many responses as IN has elements"
            )
        _check_tensors("input", config.input, _INPUTS)
        _check_tensors("output", config.output, _OUTPUTS)

    async def initialize(self, context: InstanceContext) -> None:
        pass

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        loop = asyncio.get_running_loop()
        if (busy := self._free_at - loop.time()) > 0:
            await asyncio.sleep(busy)
        self._free_at = loop.time() + max(map(_wait, requests)) / 1000
        return [self._outcome(request) for request in requests]

    def metrics(self) -> Mapping[str, float]:
        return {"cancelled": float(self.cancelled)}

    def _outcome(self, request: InferenceRequest) -> Outcome:
        values, delays = request.inputs["IN"], request.inputs["DELAY"]
        if values.shape != delays.shape:
            return InvalidRequestError(
                "expected IN and DELAY shape to match, "
                f"got {_written(values.shape)} and {_written(delays.shape)}"
            )
        return self._responses(request)

    async def _responses(self, request: InferenceRequest) -> AsyncIterator[InferenceResponse]:
        values = request.inputs["IN"].numpy().reshape(-1)
        delays = request.inputs["DELAY"].numpy().reshape(-1).tolist()
        finished = False
        try:
            for index, delay in enumerate(delays):
                if delay:
                    await asyncio.sleep(delay / 1000)
                number = np.array([index], np.uint32)
                tensors = {"OUT": values[index : index + 1], "IDX": number}
                asked = request.requested_outputs or _OUTPUTS
                yield InferenceResponse({n: Tensor.from_numpy(tensors[n]) for n in asked})
            finished = True
        finally:
            if not finished:
                self.cancelled += 1


def _wait(request: InferenceRequest) -> int:
    wait = request.inputs["WAIT"].numpy().reshape(-1)
    return int(wait[0]) if wait.size else 0


def _written(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _check_tensors(
    what: str,
    declared: Sequence[Input] | Sequence[Output],
    expected: Mapping[str, DataType],
) -> None:
    found = {tensor.name: tensor.data_type for tensor in declared}
    if found != expected:
        wanted = ", ".join(f"{name} {datatype.config_name}" for name, datatype in expected.items())
        raise ConfigError(f"repeat backend expects the {what}s {wanted}")
