"""`VllmBackend`: language models on vLLM; answers are token streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, ClassVar

from penstock.backend import (
    Histogram,
    InferenceError,
    InferenceRequest,
    InferenceResponse,
    InstanceContext,
    InvalidRequestError,
    ModelConfig,
    ModelLoadError,
    Outcome,
    ResponseStream,
    Window,
    deliver,
)
from penstock_backends.language_model import (
    Answer,
    GenerationRequest,
    LanguageModelBackend,
    Logprobs,
    UsageReporter,
    check_decoupled,
    complete_tensors,
    read_request,
    record_of,
    usage_of,
)
from penstock_backends.language_model.declared_tensors import IMAGE
from penstock_backends.vllm.engine import VllmEngine
from penstock_backends.vllm.engine_args import pin_device, prepare_environment, read_arguments
from penstock_backends.vllm.images import read_images
from penstock_backends.vllm.lora import Adapters, read_adapters
from penstock_backends.vllm.request_record import RequestRecord
from penstock_backends.vllm.sampling import BACKEND, read_sampling
from penstock_backends.vllm.triton_metrics import asks

_ENDLESS = Window(responses=1 << 30, size=1 << 60)
"""No flow control: a request has at most one response per token, whose number is limited."""


class VllmBackend(LanguageModelBackend):
    """A language model that vLLM runs, with the tensors of Triton's own vLLM backend."""

    private_tmp: ClassVar[bool] = True  # for vLLM's sockets and its workers' rendezvous files

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        return complete_tensors(config, IMAGE)

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        check_decoupled(config, "vLLM Triton")

    async def initialize(self, context: InstanceContext) -> None:
        self._relays: set[asyncio.Task[None]] = set()
        arguments = read_arguments(context.version_path)
        pin_device(arguments, context.kind, context.device_id)
        prepare_environment(arguments)
        self._model = arguments.model
        lora = arguments.enable_lora
        self._adapters = read_adapters(context.version_path) if lora else Adapters(None)
        self._engine: VllmEngine = await context.run(VllmEngine, arguments)
        try:
            await self._engine.warm_up()
        except InferenceError as error:
            self._engine.stop()
            raise ModelLoadError(f"vLLM started but cannot generate: {error}") from error
        if asks(context.config):
            self._engine.statistics.report_as_triton()

    async def healthy(self) -> bool:
        return not self._engine.failed

    def metrics(self) -> Mapping[str, float]:
        return self._engine.statistics.metrics()

    def histograms(self) -> Mapping[str, Histogram]:
        return self._engine.statistics.distributions()

    async def finalize(self) -> None:
        if hasattr(self, "_engine"):  # loading may have failed
            self._engine.stop()

    def generate(self, request: InferenceRequest) -> Outcome:
        generation = read_request(request)
        if not generation.prompt:
            raise InvalidRequestError("the prompt is empty: input 'text_input' must hold some text")
        sampling, adapter = read_sampling(
            _sampling_parameters(generation),
            # Of a traced request, the tokens so far are wanted also where it is cancelled; of one
            # whose tokens are reported, the first one is.
            stream=generation.stream
            or request.timeline is not None
            or request.report_usage is not None,
            logprobs=self._engine.logprobs,
        )
        prompt: dict[str, Any] = {"prompt": generation.prompt}
        images = read_images(request)
        if images:
            prompt["multi_modal_data"] = {"image": images}
        lora = self._adapters.find(adapter)
        record = self._record(request, generation, sampling, adapter or self._model)
        answer = Answer(generation, 0, sampling.n)
        responses = self._generate(answer, prompt, sampling, lora, record, usage_of(request))
        return responses if generation.merge else self._unmerged(responses)

    def _record(
        self, request: InferenceRequest, generation: GenerationRequest, sampling: Any, model: str
    ) -> RequestRecord | None:
        """The record of a traced request."""
        noted = record_of(request, BACKEND, model)
        if noted is None or request.timeline is None:
            return None
        noted.asked(generation, sampling)
        record = RequestRecord(request.timeline, noted)
        record.prepare(sampling, stream=generation.stream)
        return record

    async def _generate(
        self,
        answer: Answer,
        prompt: Any,
        sampling: Any,
        adapter: Any,
        record: RequestRecord | None = None,
        usage: UsageReporter | None = None,
    ) -> AsyncGenerator[InferenceResponse, None]:
        """Responses at the reader's pace: vLLM merges the outputs that a slow one has not read."""
        outputs = self._engine.generate(prompt, sampling, adapter, record)
        try:
            async with aclosing(outputs):
                async for output in outputs:
                    _add_output(answer, output)
                    if usage is not None:
                        _report(usage, answer, output)
                    if record is not None:
                        record.add(output)
                        if answer.finished:
                            record.ended(answer.candidates, finished=True)
                    if answer.due:
                        yield answer.take_response()
        finally:
            if record is not None:
                record.ended(answer.candidates, finished=False)

    def _unmerged(self, responses: AsyncGenerator[InferenceResponse, None]) -> ResponseStream:
        """Read every output from vLLM at once, for a client that wants one response per token."""
        stream = ResponseStream(window=_ENDLESS)
        task = deliver(responses, stream)
        assert task is not None
        self._relays.add(task)
        task.add_done_callback(self._relays.discard)
        return stream


def _sampling_parameters(generation: GenerationRequest) -> dict[str, Any]:
    """The sampling parameters; a requested sum of log probabilities needs `logprobs` in vLLM."""
    parameters = dict(generation.parameters or {})
    if generation.wanted.cumulative_logprob:
        parameters.setdefault("logprobs", 0)
    return parameters


def _add_output(answer: Answer, output: Any) -> None:
    """Add one `RequestOutput`; it may hold only some of the candidates."""
    if output.prompt_token_ids is not None:
        answer.prompt_tokens = len(output.prompt_token_ids)
    for completion in output.outputs:
        candidate = answer.candidates[completion.index]
        candidate.add(completion.text, len(completion.token_ids))
        if completion.logprobs is not None:
            candidate.add_logprobs(_places(completion.logprobs), completion.cumulative_logprob)
        if completion.finish_reason is not None:
            candidate.finish_reason = completion.finish_reason


def _report(usage: UsageReporter, answer: Answer, output: Any) -> None:
    """Report the tokens of a request with those of one `RequestOutput`."""
    usage.prompt = answer.prompt_tokens
    usage.cached = output.num_cached_tokens or 0
    usage.add(sum(len(one.token_ids) for one in output.outputs), finished=output.finished)


def _places(logprobs: Iterable[Mapping[int, Any]]) -> list[Logprobs]:
    return [{token: _token(logprob) for token, logprob in place.items()} for place in logprobs]


def _token(logprob: Any) -> dict[str, Any]:
    return {
        "logprob": logprob.logprob,
        "rank": logprob.rank,
        "decoded_token": logprob.decoded_token,
    }
