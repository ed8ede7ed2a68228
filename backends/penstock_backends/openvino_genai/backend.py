"""`OpenVinoGenAiBackend`: language models on OpenVINO GenAI; answers are token streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.backend import (
    BackendNotInstalledError,
    EngineFacts,
    Histogram,
    InferenceError,
    InferenceRequest,
    InstanceContext,
    ModelConfig,
    ModelLoadError,
    Outcome,
    ResponseStream,
    WithApplication,
    WithEngineFacts,
    WithMetrics,
    WithReadiness,
    package_missing,
)
from penstock_backends.language_model import (
    Answer,
    Delivery,
    Detokenizer,
    EncodeAnswer,
    GenerationRequest,
    GenerationTimes,
    LanguageModelBackend,
    PromptTokens,
    checked_ids,
    exemplar_id,
    read_request,
    record_of,
    stream_interval,
    tenant_label,
    usage_of,
)
from penstock_backends.openvino_genai.engine import GenAiEngine
from penstock_backends.openvino_genai.limits import check_prompt_size, fitting_length
from penstock_backends.openvino_genai.model_files import OPENVINO
from penstock_backends.openvino_genai.openai_app import open_openai_app, read_engine_facts
from penstock_backends.openvino_genai.pipeline import NOT_INSTALLED, GenAiPipeline, reason
from penstock_backends.openvino_genai.platform import unsupported_reason
from penstock_backends.openvino_genai.sampling import BACKEND, Sampling, read_sampling
from penstock_backends.openvino_genai.sequence import TokenSequence
from penstock_backends.openvino_genai.settings import EngineSettings, read_settings, sharing_cores

if TYPE_CHECKING:
    from penstock_backends.openai_kit.asgi import OpenAiApplication


class OpenVinoGenAiBackend(
    WithApplication, WithEngineFacts, WithMetrics, WithReadiness, LanguageModelBackend
):
    """A language model on the CPU, with the tensors of Triton's vLLM backend."""

    # Its own temporary folder is for copies of read-only model files.
    traits = replace(LanguageModelBackend.traits, private_tmp=True)
    title: ClassVar[str] = "OpenVINO GenAI"
    on_cpu: ClassVar[bool] = True

    @classmethod
    def check_files(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> None:
        read_settings(version_path)

    @classmethod
    def weight_files(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> Sequence[Path]:
        model = read_settings(version_path).model
        return [model / OPENVINO] if model.is_dir() else ()

    @classmethod
    def engine_missing(cls, settings: Mapping[str, str]) -> str:
        return NOT_INSTALLED if package_missing("openvino_genai", settings) else ""

    async def initialize(self, context: InstanceContext) -> None:
        unsupported = unsupported_reason()
        if unsupported is not None:
            raise ModelLoadError(unsupported)
        settings = read_settings(context.version_path)
        tokenizer = await context.run(_load_tokenizer, settings)
        self._settings = settings
        self._name = context.config.name
        self._interval = stream_interval(context.config)
        self._tokenizer = tokenizer
        self._facts: EngineFacts = await context.run(read_engine_facts, settings, tokenizer)
        self._prompts = PromptTokens(tokenizer, context.run, settings.max_model_len)
        self._vocabulary = settings.vocabulary or tokenizer.get_vocab_size()
        self._longest_token = max(map(len, tokenizer.get_vocab()), default=1)
        self._engine = GenAiEngine(
            await context.run(_open_pipeline, settings, context),
            max_running=settings.max_num_seqs,
            max_waiting=settings.max_num_waiting,
        )
        self._engine.statistics.cache_config = settings.cache_config
        if not settings.enable_prefix_caching:  # with it, the engine does not report their number
            self._engine.statistics.cached_tokens = 0

    async def openai_app(self) -> OpenAiApplication:
        return open_openai_app(
            self._name, self._settings, self._tokenizer, self._prompts, self._start
        )

    def engine_facts(self) -> EngineFacts:
        return self._facts

    async def healthy(self) -> bool:
        return self._engine.failure is None

    def metrics(self) -> Mapping[str, float]:
        return self._engine.metrics()

    def histograms(self) -> Mapping[str, Histogram]:
        return self._engine.statistics.distributions()

    async def finalize(self) -> None:
        if hasattr(self, "_engine"):  # loading may have failed
            self._engine.close()
            await self._prompts.close()

    def generate(self, request: InferenceRequest) -> Outcome:
        return self._start(request, read_request(request))

    def _start(
        self,
        request: InferenceRequest,
        generation: GenerationRequest,
        encode: EncodeAnswer | None = None,
    ) -> ResponseStream:
        sampling = read_sampling(
            generation.parameters or {},
            vocabulary=self._vocabulary,
            max_num_seqs=self._settings.max_num_seqs,
            top_k_cap=self._settings.top_k_cap,
        )
        prompt = self._prompt(generation)
        delivery, sequences = self._queueable(request, generation, sampling, encode)
        if prompt is not None:
            self._prepare(sequences, prompt)
            self._engine.submit(sequences)
            return delivery.stream
        self._engine.submit(sequences)
        wanted, put = partial(_is_open, delivery), partial(self._tokenized, sequences)
        self._prompts.encode_later(generation.prompt, wanted, put)
        return delivery.stream

    def _queueable(
        self,
        request: InferenceRequest,
        generation: GenerationRequest,
        sampling: Sampling,
        encode: EncodeAnswer | None,
    ) -> tuple[Delivery, list[TokenSequence]]:
        """The sequences of a request, and their delivery, before the prompt is known."""
        if (record := record_of(request, BACKEND)) is not None:
            record.asked(generation, sampling)
        sequences: list[TokenSequence] = []
        times = GenerationTimes(
            self._engine.statistics,
            0,
            exemplar_id(request),
            record=record,
            usage=usage_of(request),
            candidates=sampling.n,
            tenant=tenant_label(request),
            waited=request.scope.waited,
        )
        delivery = Delivery(
            Answer(generation, 0, sampling.n, encode),
            partial(self._engine.cancel, sequences),
            merge=generation.merge,
            record=record,
            times=times,
            interval=self._interval,
        )
        sequences += [
            self._sequence(delivery, generation, sampling, index) for index in range(sampling.n)
        ]
        return delivery, sequences

    def _prompt(self, generation: GenerationRequest) -> Sequence[int] | None:
        """The prompt's tokens, where they are not better made on a thread.

        Raises `InvalidRequestError` for more than fit.
        """
        settings, text = self._settings, generation.prompt
        if generation.input_ids is not None:
            return checked_ids(generation.input_ids, self._vocabulary, settings.max_model_len)
        check_prompt_size(len(text), self._longest_token, settings)
        return None if self._prompts.is_long(text) else self._prompts.encode(text)

    def _tokenized(
        self, sequences: Sequence[TokenSequence], made: Sequence[int] | InferenceError
    ) -> None:
        """Go on with a request that waits in the engine's queue for its prompt."""
        try:
            if isinstance(made, InferenceError):
                raise made
            self._prepare(sequences, made)
        except InferenceError as error:
            self._engine.withdraw(sequences)
            sequences[0].delivery.stream.fail(error)
            return
        self._engine.prepared()

    def _prepare(self, sequences: Sequence[TokenSequence], prompt: Sequence[int]) -> None:
        """Give a request its prompt; raises `InvalidRequestError` for more tokens than fit."""
        delivery, sampling = sequences[0].delivery, sequences[0].sampling
        length = fitting_length(len(prompt), sampling.max_tokens, self._settings)
        for sequence in sequences:
            sequence.prepare(prompt, length)
        delivery.answer.prompt_tokens = len(prompt)
        if delivery.times is not None:
            delivery.times.has_prompt(len(prompt))
        if delivery.record is not None:
            delivery.record.prompt(len(prompt), self._engine.statistics.cached_tokens)

    def _sequence(
        self, delivery: Delivery, request: GenerationRequest, sampling: Sampling, index: int
    ) -> TokenSequence:
        """The sequence of candidate `index`; its seed is the request's plus `index`."""
        wanted = request.wanted
        report = sampling.logprobs and wanted.logprobs
        if index:
            sampling = replace(sampling, seed=(sampling.seed + index) % (1 << 64))
        return TokenSequence(
            delivery,
            delivery.answer.candidates[index],
            (),
            sampling,
            Detokenizer(self._tokenizer, skip_special_tokens=sampling.skip_special_tokens),
            logprobs=report or wanted.cumulative_logprob,
            report=self._decode_token if report else None,
            keep_ids=wanted.token_ids,
        )

    def _decode_token(self, token: int) -> str:
        return str(self._tokenizer.decode([token], skip_special_tokens=False))


def _is_open(delivery: Delivery) -> bool:
    """Whether the client still reads, and the request has not failed."""
    return not delivery.stream.ended


def _open_pipeline(settings: EngineSettings, context: InstanceContext) -> GenAiPipeline:
    """Open the pipeline on the instance's thread, whose CPU affinity it inherits."""
    return GenAiPipeline(sharing_cores(settings, context.config, context.host_policy))


def _load_tokenizer(settings: EngineSettings) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise BackendNotInstalledError(
            "backend 'openvino_genai' needs the package tokenizers: "
            "pip install 'penstock[openvino]'"
        ) from error
    try:
        tokenizer = Tokenizer.from_file(str(settings.tokenizer))
    except Exception as error:  # the package raises plain exceptions
        raise ModelLoadError(f"cannot read '{settings.tokenizer}': {reason(error)}") from error
    size = tokenizer.get_vocab_size()
    if settings.vocabulary is not None and size > settings.vocabulary:
        raise ModelLoadError(
            f"'{settings.tokenizer}' has {size} tokens, but the model has "
            f"{settings.vocabulary}: they do not belong together"
        )
    return tokenizer
