"""`RemoteBackend`: passes the requests of a model on to servers elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.backend import (
    Backend,
    InferenceError,
    InferenceRequest,
    InstanceContext,
    ModelConfig,
    Outcome,
    Traits,
    WithMetrics,
    WithReadiness,
)
from penstock_backends.remote.completion import complete
from penstock_backends.remote.kserve import KServeModel
from penstock_backends.remote.settings import read_settings


class RemoteBackend(WithMetrics, WithReadiness, Backend):
    """A model that another server has: here are its scheduling, admission, traces and metrics."""

    traits = Traits(serial=False, eager=True)

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        return await complete(config, read_settings(config))

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        read_settings(config)

    async def initialize(self, context: InstanceContext) -> None:
        self._model = KServeModel(read_settings(context.config), context.config)
        await self._model.start()

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        return [self._outcome(request) for request in requests]

    def _outcome(self, request: InferenceRequest) -> Outcome:
        try:
            return self._model.infer(request)
        except InferenceError as error:
            return error

    def unready(self) -> str:
        return self._model.unready()

    def metrics(self) -> Mapping[str, float]:
        return self._model.metrics()

    async def finalize(self) -> None:
        if hasattr(self, "_model"):  # loading may have failed
            await self._model.close()
