"""`IdentityBackend`: the n-th input of the configuration is its n-th output, without a copy."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.backend import (
    Backend,
    ConfigError,
    InferenceRequest,
    InferenceResponse,
    InstanceContext,
    ModelConfig,
    Outcome,
    Traits,
)


class IdentityBackend(Backend):
    """Answers at once, or `execute_delay_ms` milliseconds after the start of each batch.

    With `instance_wise_delay_multiplier` M, the delay of instance n is max(M * n, 1) times as long.
    """

    traits = Traits(eager=True)

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        inputs = [(tensor.data_type, tensor.dims) for tensor in config.input]
        outputs = [(tensor.data_type, tensor.dims) for tensor in config.output]
        if inputs != outputs:
            raise ConfigError(
                f"model '{config.name}': the identity backend needs as many outputs as inputs, "
                "with the same datatypes and dims in the same order"
            )
        _number(config, "execute_delay_ms")
        _number(config, "instance_wise_delay_multiplier")

    async def initialize(self, context: InstanceContext) -> None:
        config = context.config
        self._pairs = [(i.name, o.name) for i, o in zip(config.input, config.output, strict=True)]
        factor = _number(config, "instance_wise_delay_multiplier") * _index(context.name)
        self._delay = _number(config, "execute_delay_ms") / 1000 * max(factor, 1)

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        if self._delay:
            await asyncio.sleep(self._delay)
        return [self._answer(request) for request in requests]

    def _answer(self, request: InferenceRequest) -> InferenceResponse:
        inputs, asked = request.inputs, request.requested_outputs
        return InferenceResponse(
            {
                output: inputs[name]
                for name, output in self._pairs
                if name in inputs and (not asked or output in asked)
            }
        )


def _number(config: ModelConfig, name: str) -> int:
    text = config.parameter(name) or "0"
    if not text.isdecimal():
        raise ConfigError(f"parameter '{name}' must be a whole number, not '{text}'")
    return int(text)


def _index(instance: str) -> int:
    """The instance's number, at the end of its name; 0 without one."""
    number = instance.rpartition("_")[2]
    return int(number) if number.isdecimal() else 0
