"""`TensorRtLlmBackend`: language models on TensorRT-LLM, with the tensors of its LLM-API model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from penstock.backend import (
    AsgiApp,
    Histogram,
    InferenceError,
    InferenceRequest,
    InstanceContext,
    InvalidRequestError,
    ModelConfig,
    ModelLoadError,
    Outcome,
    RequestCancelledError,
    WithApplication,
    WithMetrics,
    WithReadiness,
    package_missing,
)
from penstock_backends.language_model import (
    GenerationRecord,
    GenerationRequest,
    LanguageModelBackend,
    exemplar_id,
    record_of,
    stream_interval,
    tenant_label,
    usage_of,
)
from penstock_backends.language_model.request import MERGE
from penstock_backends.tensorrt_llm.answer import OutputEncoder
from penstock_backends.tensorrt_llm.declared_tensors import complete_tensors
from penstock_backends.tensorrt_llm.engine import NOT_INSTALLED, PREFIX, TensorRtLlmEngine
from penstock_backends.tensorrt_llm.environment import leave_job, pin_devices
from penstock_backends.tensorrt_llm.face import Face
from penstock_backends.tensorrt_llm.generation import CANCELLED, Generation
from penstock_backends.tensorrt_llm.images import ImageReader
from penstock_backends.tensorrt_llm.layout import name_ineffective, read_layout_settings
from penstock_backends.tensorrt_llm.llm_api import LlmApiFace
from penstock_backends.tensorrt_llm.logits_processors import LogitsProcessors
from penstock_backends.tensorrt_llm.openai_app import trtllm_application
from penstock_backends.tensorrt_llm.request import Prompt, check_adapter, flag
from penstock_backends.tensorrt_llm.settings import EngineSettings, read_settings
from penstock_backends.tensorrt_llm.text_face import NAMES, TextFace
from penstock_backends.tensorrt_llm.token_face import TokenFace

BACKEND = "tensorrt_llm"
NOT_DECOUPLED = "Streaming is only supported in decoupled mode."
NO_ID = "A request id must be provided for request cancellation"


class TensorRtLlmBackend(WithApplication, WithMetrics, WithReadiness, LanguageModelBackend):
    """A language model that TensorRT-LLM runs."""

    # Its own temporary folder is for the sockets of its workers.
    traits = replace(LanguageModelBackend.traits, private_tmp=True)

    @classmethod
    def face(cls, config: ModelConfig) -> Face:
        """The tensors of a model: by its name, where that is one of the five-model layout."""
        return TextFace() if config.name in NAMES else LlmApiFace()

    @classmethod
    def read_settings(cls, config: ModelConfig, version_path: Path) -> EngineSettings:
        """The engine's arguments at its start; raises `ModelLoadError`."""
        return read_settings(version_path)

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        read = await asyncio.to_thread(cls.read_settings, config, version_path)
        face = cls.face(config)
        sized = replace(config, max_batch_size=config.max_batch_size or read.max_batch_size)
        return complete_tensors(sized, bool(read.decoupled), face.inputs, face.outputs)

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        stream_interval(config)

    @classmethod
    def check_files(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> None:
        cls.read_settings(config, version_path)

    @classmethod
    def engine_missing(cls, settings: Mapping[str, str]) -> str:
        return NOT_INSTALLED if package_missing("tensorrt_llm", settings) else ""

    async def initialize(self, context: InstanceContext) -> None:
        self._running: dict[str, set[Generation]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._context = context
        self._face = self.face(context.config)
        settings = await context.run(self.read_settings, context.config, context.version_path)
        leave_job()
        pin_devices(settings, context)
        self._settings = settings
        self._images = ImageReader(context.config, context.settings, settings.multimodal)
        self._interval = stream_interval(context.config)
        self._encoder = OutputEncoder(context.config)
        self._processors: LogitsProcessors = await context.run(
            LogitsProcessors, settings.processors
        )
        self._engine: TensorRtLlmEngine = await context.run(TensorRtLlmEngine, settings)
        try:
            await self._warm_up()
        except InferenceError as error:
            await self.finalize()
            raise ModelLoadError(f"TensorRT-LLM started but cannot generate: {error}") from error
        self._engine.read_statistics()

    async def _warm_up(self) -> None:
        """Generate one token, so that a model that cannot is not served."""
        warm: Any = [1] if self._settings.values.get("skip_tokenizer_init") else "warm"
        sampling: dict[str, Any] = {"max_tokens": 1}
        if isinstance(warm, list):  # without a tokenizer, the end token is not known
            sampling |= {"end_id": -1, "pad_id": 0, "detokenize": False}
        try:
            async for _ in self._engine.submit(warm, sampling, streaming=False):
                pass
        except Exception as error:  # the engine's, of any kind
            raise self._engine.translated(error) from error

    async def openai_app(self) -> AsgiApp | None:
        if self._settings.openai is None:
            return None
        name = self._context.config.name
        # On the event loop: the application makes locks of it.
        return trtllm_application(self._engine, self._settings, name)

    async def healthy(self) -> bool:
        return not self._engine.failed

    def metrics(self) -> Mapping[str, float]:
        return self._engine.statistics.metrics()

    def histograms(self) -> Mapping[str, Histogram]:
        return self._engine.statistics.distributions()

    async def finalize(self) -> None:
        if not hasattr(self, "_engine"):  # loading may have failed
            return
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._engine.stop()
        await self._context.run(self._engine.shut_down)

    def generate(self, request: InferenceRequest) -> Outcome:
        if flag(request, "stop"):
            return self._stop(request.id)
        try:
            prompt = self._face.read(request, self._settings)
            self._check(prompt)
            processor = self._processors.find(prompt.processor)
        except InvalidRequestError as error:
            raise InvalidRequestError(PREFIX + error.message) from error
        sampling = (
            prompt.sampling
            if processor is None
            else (prompt.sampling | {"logits_processor": processor})
        )
        record, usage = self._record(request, prompt), usage_of(request)
        respond = self._face.answer(self._encoder, prompt, self._context.config)
        # A record and a usage report need each token, also where the client does not stream.
        by_token = prompt.streaming or record is not None or usage is not None
        generation = Generation(
            self._engine,
            respond,
            streaming=prompt.streaming,
            by_token=by_token,
            merge=bool(request.parameters.get(MERGE, True)),
            record=record,
            usage=usage,
            trace_id=exemplar_id(request),
            tenant=tenant_label(request),
            waited=request.scope.waited,
            interval=self._interval,
        )
        self._start(generation, request.id, partial(self._submit, prompt, sampling, by_token))
        return generation.stream

    def _check(self, prompt: Prompt) -> None:
        if prompt.streaming and not self._context.config.decoupled:
            raise InvalidRequestError(NOT_DECOUPLED)
        _check_length(prompt.text, self._settings)
        check_adapter(prompt.adapter, self._settings.enable_lora)
        self._images.check(prompt.image_urls)

    async def _submit(self, prompt: Prompt, sampling: dict[str, Any], by_token: bool) -> Any:
        """Fetch what the prompt names, and give it to the engine."""
        inputs: Any = prompt.text
        if prompt.image_urls:
            try:
                images = await self._images.read(prompt.image_urls)
            except InvalidRequestError as error:
                raise InvalidRequestError(PREFIX + error.message) from error
            inputs = {"prompt": prompt.text, "multi_modal_data": {"image": images}}
        return self._engine.submit(inputs, sampling, prompt.adapter, streaming=by_token)

    def _start(self, generation: Generation, client_id: str, submit: Any) -> None:
        running = self._running.setdefault(client_id, set())
        running.add(generation)
        task = generation.start(submit)
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, generation, client_id))

    def _ended(self, generation: Generation, client_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        running = self._running[client_id]
        running.discard(generation)
        if not running:
            del self._running[client_id]

    def _stop(self, client_id: str) -> InferenceError:
        """End the requests with this id, and this one (TL-06)."""
        if not client_id:
            return InvalidRequestError(NO_ID)
        for generation in list(self._running.get(client_id, ())):
            generation.stop()
        return RequestCancelledError(CANCELLED)

    def _record(self, request: InferenceRequest, prompt: Prompt) -> GenerationRecord | None:
        """The record of a traced request."""
        adapter = prompt.adapter
        model = self._settings.model if adapter is None else adapter.name
        record = record_of(request, BACKEND, model)
        if record is not None:
            given = GenerationRequest("", prompt.streaming, parameters=prompt.given)
            known = {"max_tokens": None, "n": 1, **prompt.sampling}
            record.asked(given, SimpleNamespace(**known))
        return record


class TensorRtLlmTokensBackend(TensorRtLlmBackend):
    """The model `tensorrt_llm` of the five-model layout (`backend: "tensorrtllm"`)."""

    @classmethod
    def face(cls, config: ModelConfig) -> Face:
        return TokenFace()

    async def initialize(self, context: InstanceContext) -> None:
        name_ineffective(context.config)
        await super().initialize(context)

    @classmethod
    def read_settings(cls, config: ModelConfig, version_path: Path) -> EngineSettings:
        return read_layout_settings(config, version_path)


def _check_length(prompt: str | list[int], settings: EngineSettings) -> None:
    """Refuse a prompt that cannot fit, before the engine makes tokens of it."""
    if isinstance(prompt, str) and len(prompt) > settings.most_characters:
        raise InvalidRequestError(
            f"the prompt has {len(prompt)} characters; at most {settings.most_characters} can fit"
        )
    if isinstance(prompt, list) and 0 < settings.longest <= len(prompt):
        raise InvalidRequestError(
            f"the prompt has {len(prompt)} tokens; the context has {settings.longest}, "
            "one of which must be left for the answer"
        )
