"""`IdentityBackend`: each input of the configuration is an output, without a copy (B-18)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import starmap

from penstock.backend import (
    Backend,
    ConfigError,
    InferenceRequest,
    InferenceResponse,
    Input,
    InstanceContext,
    ModelConfig,
    Outcome,
    Output,
    Traits,
)


class IdentityBackend(Backend):
    """Answers at once, or `execute_delay_ms` milliseconds after the start of each batch.

    `INPUT<index>` is `OUTPUT<index>`; where other names are declared, the n-th input is the n-th
    output. With `instance_wise_delay_multiplier` M, the delay of instance n is max(M * n, 1) times
    as long. The start of an instance takes `creation_delay_sec` seconds.
    """

    traits = Traits(eager=True)

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        if len(config.input) != len(config.output) or not all(starmap(_fit, _pairs(config))):
            raise ConfigError(
                f"model '{config.name}': the identity backend needs as many outputs as inputs, "
                "with the same datatypes and dims in the same order"
            )
        for name in ("execute_delay_ms", "instance_wise_delay_multiplier", "creation_delay_sec"):
            _number(config, name)

    async def initialize(self, context: InstanceContext) -> None:
        config = context.config
        self._names = [(one.name, other.name) for one, other in _pairs(config)]
        factor = _number(config, "instance_wise_delay_multiplier") * _index(context.name)
        self._delay = _number(config, "execute_delay_ms") / 1000 * max(factor, 1)
        await asyncio.sleep(_number(config, "creation_delay_sec"))

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        if self._delay:
            await asyncio.sleep(self._delay)
        return [self._answer(request) for request in requests]

    def _answer(self, request: InferenceRequest) -> InferenceResponse:
        inputs, asked = request.inputs, request.requested_outputs
        return InferenceResponse(
            {
                output: inputs[name]
                for name, output in self._names
                if name in inputs and (not asked or output in asked)
            }
        )


def _pairs(config: ModelConfig) -> list[tuple[Input, Output]]:
    """Each input with its output: by index where all have one, else in their order."""
    inputs = {one.name.removeprefix("INPUT"): one for one in config.input}
    outputs = {one.name.removeprefix("OUTPUT"): one for one in config.output}
    if inputs.keys() == outputs.keys():
        return [(one, outputs[index]) for index, one in inputs.items()]
    return [*zip(config.input, config.output, strict=False)]


def _fit(one: Input, other: Output) -> bool:
    """Whether an input may be an output, as clients see both or as the model does."""
    same_dims = one.dims == other.dims or one.backend_dims == other.backend_dims
    return one.data_type == other.data_type and same_dims


def _number(config: ModelConfig, name: str) -> int:
    text = config.parameter(name) or "0"
    if not text.isdecimal():
        raise ConfigError(f"parameter '{name}' must be a whole number, not '{text}'")
    return int(text)


def _index(instance: str) -> int:
    """The instance's number, at the end of its name; 0 without one."""
    number = instance.rpartition("_")[2]
    return int(number) if number.isdecimal() else 0
