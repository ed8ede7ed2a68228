"""`VllmBackend`: language models on vLLM; answers are token streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from penstock.backend import (
    AsgiApp,
    Controllable,
    EngineFacts,
    Histogram,
    InferenceError,
    InferenceRequest,
    InstanceContext,
    InvalidRequestError,
    ModelConfig,
    ModelLoadError,
    Outcome,
    WithApplication,
    WithEngineFacts,
    WithMetrics,
    WithReadiness,
    package_missing,
)
from penstock_backends.language_model import (
    Answer,
    GenerationRequest,
    LanguageModelBackend,
    check_length,
    read_request,
    record_of,
    stream_interval,
    usage_of,
)
from penstock_backends.language_model.declared_tensors import Tensors
from penstock_backends.vllm.adapters import Adapter, Adapters
from penstock_backends.vllm.arguments.devices import devices_of, pin_devices
from penstock_backends.vllm.arguments.engine_args import (
    NOT_INSTALLED,
    prepare_environment,
    read_arguments,
    safetensors_of,
)
from penstock_backends.vllm.control import EngineControl
from penstock_backends.vllm.engine import VllmEngine
from penstock_backends.vllm.engine_facts import read_engine_facts
from penstock_backends.vllm.generation import VllmGeneration
from penstock_backends.vllm.inputs.media import Medium, limits_of, load_media, read_media
from penstock_backends.vllm.inputs.prompts import prompt_of
from penstock_backends.vllm.inputs.request_options import NO_OPTIONS, read_options
from penstock_backends.vllm.inputs.sampling import BACKEND, read_sampling
from penstock_backends.vllm.inputs.tensors import VLLM_TENSORS
from penstock_backends.vllm.lora import DISABLED, allowed_folders, keep_adapters, read_paths
from penstock_backends.vllm.output_owners import OWNER, owner_of
from penstock_backends.vllm.outputs import OutputReader
from penstock_backends.vllm.pooling import (
    EMBEDDING_REQUEST,
    asks_for_text,
    pooled,
    read_embedding_request,
    read_pooling_request,
    refusal,
    refuse_pooling,
)
from penstock_backends.vllm.request_record import RequestRecord
from penstock_backends.vllm.triton_metrics import wants_triton_metrics

HEALTH_CHECK: Final = "ENABLE_VLLM_HEALTH_CHECK"
"""The parameter of a model that has it unloaded when its engine is not healthy (VL-16), as by
Triton's backend; else its process is restarted."""


class VllmBackend(
    Controllable, WithApplication, WithEngineFacts, WithMetrics, WithReadiness, LanguageModelBackend
):
    """A language model that vLLM runs, with the tensors of Triton's own vLLM backend."""

    # Its own temporary folder is for vLLM's sockets and its workers' rendezvous files.
    traits = replace(LanguageModelBackend.traits, private_tmp=True)
    title: ClassVar[str] = "vLLM Triton"
    tensors: ClassVar[Tensors] = VLLM_TENSORS

    @classmethod
    def check_files(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> None:
        arguments = read_arguments(version_path)
        for group in config.instance_group:
            devices_of(arguments, config, group.kind, 0)
        if arguments.enable_lora:
            read_paths(version_path)
        allowed_folders(config, version_path)

    @classmethod
    def weight_files(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> Sequence[Path]:
        return safetensors_of(read_arguments(version_path))

    @classmethod
    def engine_missing(cls, settings: Mapping[str, str]) -> str:
        return NOT_INSTALLED if package_missing("vllm", settings) else ""

    async def initialize(self, context: InstanceContext) -> None:
        arguments = self._arguments = read_arguments(context.version_path)
        self._name = context.config.name
        pin_devices(arguments, context.config, context.kind, context.device_id)
        prepare_environment(arguments)
        self._model = arguments.model
        arguments.values["served_model_name"] = self._name  # by which vLLM's errors call it
        self._interval = stream_interval(context.config)
        self._media_limits = limits_of(context.config, context.settings, arguments.values)
        lora = read_paths(context.version_path) if arguments.enable_lora else None
        folders = allowed_folders(context.config, context.version_path)
        if lora is not None:
            keep_adapters(arguments, len(lora))
        self._engine: VllmEngine = await context.run(VllmEngine, arguments)
        calls = self._engine.calls
        if lora is not None:
            self._engine.adapters = Adapters(calls, lora, calls.most_adapters)
        self._control = EngineControl(calls, self._engine.adapters, folders)
        try:
            await self._engine.warm_up()
            await self._engine.prove_kv_events()
        except InferenceError as error:
            self._engine.stop()
            raise ModelLoadError(f"vLLM started but does not answer: {error}") from error
        health_check = context.config.parameter(HEALTH_CHECK) or ""
        self.unload_unhealthy = health_check.lower() == "true"
        if wants_triton_metrics(context.config) and arguments.keeps_statistics:
            self._engine.statistics.report_as_triton()

    async def openai_app(self) -> AsgiApp | None:
        openai = self._arguments.openai
        if not openai.enabled:
            return None
        from penstock_backends.vllm.openai.application import vllm_application

        return await vllm_application(self._engine, self._arguments, self._name, self._media_limits)

    def engine_facts(self) -> EngineFacts:
        return read_engine_facts(self._engine)

    async def control(self, action: str, arguments: Mapping[str, Any]) -> Any:
        return await self._control.carry_out(action, arguments)

    async def healthy(self) -> bool:
        return not self._engine.failed

    def unready(self) -> str:
        return self._engine.calls.condition or self._engine.kv_events.complaint

    def metrics(self) -> Mapping[str, float]:
        return self._engine.statistics.metrics()

    def histograms(self) -> Mapping[str, Histogram]:
        return self._engine.statistics.distributions()

    async def finalize(self) -> None:
        if hasattr(self, "_engine"):  # loading may have failed
            await self._engine.close()

    def generate(self, request: InferenceRequest) -> Outcome:
        OWNER.set(owner_of(request))  # for the task that gives vLLM the request
        if EMBEDDING_REQUEST in request.inputs or not self._engine.generates:
            return self._pool(request)
        refuse_pooling(request)
        generation = read_request(request)
        options, parameters = read_options(
            request, _sampling_parameters(generation), by_priority=self._engine.facts.by_priority
        )
        prompt = prompt_of(generation, self._engine.facts)
        if options.cache_salt is not None:
            prompt["cache_salt"] = options.cache_salt
        sampling, adapter = read_sampling(
            parameters,
            stream=generation.stream or _is_watched(request),
            logprobs=self._engine.logprobs,
        )
        check_length(sampling.max_tokens, self._engine.facts.context_length)
        media = read_media(request, self._engine.facts.modalities)
        lora = self._adapter(adapter)
        running = self._generation(request, generation, sampling, adapter or self._model)
        running.start(partial(self._with_media, prompt, media), sampling, lora, options)
        return running.stream

    def _generation(
        self, request: InferenceRequest, generation: GenerationRequest, sampling: Any, model: str
    ) -> VllmGeneration:
        """The generation of a request, not yet begun; `model` is the name of what answers.

        Raises `InvalidRequestError` where the model cannot tell reasoning from the answer.
        """
        engine, wanted = self._engine, generation.wanted.reasoning_text
        record = self._record(request, generation, sampling, model)
        parsers = engine.facts.parsers(sampling.n, engine.tokenizer) if wanted else ()
        answer = Answer(generation, 0, sampling.n)
        return VllmGeneration(
            engine,
            answer,
            OutputReader(answer, parsers),
            merge=generation.merge,
            interval=self._interval,
            record=record,
            usage=usage_of(request),
        )

    async def _with_media(self, prompt: dict[str, Any], media: Sequence[Medium]) -> dict[str, Any]:
        """The prompt, once the request's media are there."""
        if media:
            prompt["multi_modal_data"] = await load_media(media, self._media_limits)
        return prompt

    def _pool(self, request: InferenceRequest) -> Outcome:
        """Start a request to a pooling model, or one for an embedding as Triton's client asks."""
        engine, name = self._engine, request.model_name
        if asks_for_text(request):
            raise refusal(name, "generate")
        read_media(request, {})  # vLLM pools texts here
        if EMBEDDING_REQUEST in request.inputs:
            if "embed" not in engine.tasks:
                raise refusal(name, "embed")
            return pooled(engine, read_embedding_request(request, engine), NO_OPTIONS)
        generation = read_request(request)
        options, left = read_options(
            request, generation.parameters or {}, by_priority=engine.facts.by_priority
        )
        asked = read_pooling_request(request, replace(generation, parameters=left), engine)
        return pooled(engine, asked, options)

    def _adapter(self, name: str | None) -> Adapter | None:
        if name is None:
            return None
        if self._engine.adapters is None:
            raise InvalidRequestError(DISABLED)
        return self._engine.adapters.find(name)

    def _record(
        self, request: InferenceRequest, generation: GenerationRequest, sampling: Any, model: str
    ) -> RequestRecord | None:
        """The record of a traced request."""
        noted = record_of(request, BACKEND, model)
        if noted is None or request.scope.timeline is None:
            return None
        noted.asked(generation, sampling)
        record = RequestRecord(request.scope.timeline, noted)
        record.prepare(sampling, stream=generation.stream)
        return record


def _is_watched(request: InferenceRequest) -> bool:
    """Whether outputs are wanted as they are made, also where the client does not stream.

    Of a traced request, the tokens so far are wanted also where it is cancelled; of one whose
    tokens are reported, the first one is.
    """
    scope = request.scope
    return scope.timeline is not None or scope.report_usage is not None


def _sampling_parameters(generation: GenerationRequest) -> dict[str, Any]:
    """The sampling parameters, with those that requested log probabilities need in vLLM."""
    parameters = dict(generation.parameters or {})
    if generation.wanted.cumulative_logprob:
        parameters.setdefault("logprobs", 0)
    if generation.wanted.prompt_logprobs:
        parameters.setdefault("prompt_logprobs", 0)
    return parameters
