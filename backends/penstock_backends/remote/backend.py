"""`RemoteBackend`: passes the requests of a model on to servers elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.backend import (
    AsgiApp,
    Backend,
    ConfigError,
    EngineFacts,
    Histogram,
    InferenceError,
    InferenceRequest,
    Inspectable,
    InstanceContext,
    ModelConfig,
    Outcome,
    Traits,
    WithApplication,
    WithEngineFacts,
    WithMetrics,
    WithReadiness,
)
from penstock_backends.language_model import check_decoupled, complete_tensors, stream_interval
from penstock_backends.remote.completion import complete, on_cpu
from penstock_backends.remote.kserve import KServeModel
from penstock_backends.remote.openai_model import OpenAiModel
from penstock_backends.remote.settings import KSERVE, OPENAI, read_settings
from penstock_backends.remote.vllm_model import VllmModel


class RemoteBackend(
    Inspectable, WithApplication, WithEngineFacts, WithMetrics, WithReadiness, Backend
):
    """A model that another server has: here are its scheduling, admission, traces and metrics."""

    traits = Traits(serial=False, eager=True)

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        read = read_settings(config, settings)
        if read.protocol == KSERVE:
            return await complete(config, read)
        return on_cpu(complete_tensors(config))

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        if read_settings(config).protocol != KSERVE:
            check_decoupled(config, "remote")
            stream_interval(config)

    @classmethod
    def tells_tokens(cls, config: ModelConfig) -> bool:
        return read_settings(config).protocol != KSERVE

    @classmethod
    def completes_by_reading(cls, config: ModelConfig, version_path: Path) -> bool:
        try:
            return read_settings(config).protocol != KSERVE
        except ConfigError:  # which `check_config` tells
            return False

    async def initialize(self, context: InstanceContext) -> None:
        settings = read_settings(context.config, context.settings)
        self._model: KServeModel | OpenAiModel | VllmModel
        if settings.protocol == KSERVE:
            self._model = KServeModel(settings, context.config)
        elif settings.protocol == OPENAI:
            self._model = OpenAiModel(settings, context.config)
        else:
            self._model = VllmModel(settings, context)
        await self._model.start()

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        return [self._outcome(request) for request in requests]

    def _outcome(self, request: InferenceRequest) -> Outcome:
        try:
            return self._model.infer(request)
        except InferenceError as error:
            return error

    @classmethod
    def has_application(cls, config: ModelConfig) -> bool:
        return read_settings(config).protocol == OPENAI

    async def openai_app(self) -> AsgiApp | None:
        model = self._model
        return model.application() if isinstance(model, OpenAiModel) else None

    def engine_facts(self) -> EngineFacts | None:
        return self._model.engine_facts() if isinstance(self._model, VllmModel) else None

    def unready(self) -> str:
        return self._model.unready()

    def metrics(self) -> Mapping[str, float]:
        return self._model.metrics()

    def histograms(self) -> Mapping[str, Histogram]:
        return {} if isinstance(self._model, KServeModel) else self._model.histograms()

    async def finalize(self) -> None:
        if hasattr(self, "_model"):  # loading may have failed
            await self._model.close()
