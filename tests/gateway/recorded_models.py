"""The models behind the recorded answers, rebuilt as one backend that knows them by name."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from penstock.core.backend import Backend, InstanceContext, Outcome
from penstock.core.config import DynamicBatching, ModelConfig, ModelInput, ModelOutput
from penstock.core.errors import InferenceError, InternalError, error_from_code
from penstock.core.request import InferenceRequest, InferenceResponse
from penstock.core.tensor import DataType, Tensor

_CODES = (
    "UNKNOWN",
    "INTERNAL",
    "NOT_FOUND",
    "INVALID_ARG",
    "UNAVAILABLE",
    "UNSUPPORTED",
    "ALREADY_EXISTS",
    "CANCELLED",
)


class RecordedModels(Backend):
    """Does what the model of its name does."""

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        """The models that say what they are by themselves are all alike."""
        if not config.name.startswith("auto_"):
            return config
        dims, batch = (4,), 8 if config.name == "auto_batch" else 0
        text = ModelInput(name="OPT", data_type=DataType.BYTES, dims=(1,), optional=True)
        return replace(
            config,
            max_batch_size=batch,
            input=(ModelInput(name="INPUT0", data_type=DataType.FP32, dims=dims), text),
            output=(ModelOutput(name="OUTPUT0", data_type=DataType.FP32, dims=dims),),
            dynamic_batching=DynamicBatching() if batch else None,
        )

    async def initialize(self, context: InstanceContext) -> None:
        self._config = context.config
        name = context.config.name
        known = (run for start, run in _MODELS if name.startswith(start))
        self._run = next(known, _identity)

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: InferenceRequest) -> Outcome:
        try:
            return self._run(request, self._config)
        except InferenceError as error:
            return error


Run = Callable[[InferenceRequest, ModelConfig], Outcome]


def _numbers(*values: int, dtype: type = np.int32) -> InferenceResponse:
    return InferenceResponse({"OUTPUT0": Tensor.from_numpy(np.array(values, dtype))})


def _identity(request: InferenceRequest, _: ModelConfig) -> Outcome:
    return InferenceResponse({"OUTPUT0": request.inputs["INPUT0"]})


def _add_sub(request: InferenceRequest, _: ModelConfig) -> Outcome:
    one, other = request.inputs["INPUT0"].numpy(), request.inputs["INPUT1"].numpy()
    return InferenceResponse(
        {"OUTPUT0": Tensor.from_numpy(one + other), "OUTPUT1": Tensor.from_numpy(one - other)}
    )


def _mode(request: InferenceRequest) -> int:
    return int(request.inputs["MODE"].numpy()[0])


def _failer(request: InferenceRequest, _: ModelConfig) -> Outcome:
    mode = _mode(request)
    if mode == 2:
        raise InternalError("plain model error")
    if mode == 3:
        raise error_from_code("NOT_FOUND", "not found by model")
    if 20 <= mode < 28:
        raise error_from_code(_CODES[mode - 20], f"code {_CODES[mode - 20]}")
    answers = {
        5: InferenceResponse({"OUTPUT0": Tensor.from_numpy(np.array([1.5], np.float32))}),
        6: InferenceResponse(),
        30: _numbers(1, 2, 3),
    }
    return answers.get(mode, _numbers(mode))


def _decoupled_failer(request: InferenceRequest, _: ModelConfig) -> Outcome:
    return _script(_mode(request))


async def _script(mode: int) -> AsyncIterator[InferenceResponse]:
    error = InternalError("first error" if mode == 4 else "mid stream error")
    failure = InferenceResponse(error=error)
    scripts: dict[int, list[InferenceResponse]] = {
        0: [_numbers(1), _numbers(2)],
        1: [_numbers(1), _numbers(2).as_final()],
        2: [],
        3: [_numbers(1), failure],
        4: [failure, _numbers(2)],
        6: [_numbers(1)],
        8: [_numbers(8).as_final()],
    }
    for response in scripts[mode]:
        yield response
    if mode == 6:
        raise ValueError("boom after send")


def _tokens(request: InferenceRequest, _: ModelConfig) -> Outcome:
    given = request.inputs.get("max_tokens")
    return _count(int(given.numpy()[0]) if given is not None else 16)


async def _count(tokens: int) -> AsyncIterator[InferenceResponse]:
    for number in range(tokens):
        yield InferenceResponse({"text_output": Tensor.from_strings([f"tok{number} "])})


def _params(request: InferenceRequest, config: ModelConfig) -> Outcome:
    """What the model sees of a request."""
    seen = {
        "request_id": request.id,
        "correlation_id": request.correlation_id,
        "flags": request.sequence_start + 2 * request.sequence_end,
        "timeout": request.timeout,
        "parameters": request.parameters,
        "requested_output_names": sorted(
            request.requested_outputs or [tensor.name for tensor in config.output]
        ),
        "inputs": sorted(
            (name, str(tensor.numpy().dtype), list(tensor.shape))
            for name, tensor in request.inputs.items()
        ),
    }
    text = json.dumps(seen, sort_keys=True)
    return InferenceResponse({"OUTPUT0": Tensor.from_strings([text])})


_MODELS: tuple[tuple[str, Run], ...] = (
    ("simple", _add_sub),
    ("minimal_batch", _add_sub),
    ("failer", _failer),
    ("dec_failer", _decoupled_failer),
    ("tokens", _tokens),
    ("params", _params),
)
