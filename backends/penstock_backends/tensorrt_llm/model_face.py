"""`TensorRtLlmFaceBackend`: the tensors of `ensemble` and `tensorrt_llm_bls` over another model."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from penstock.backend import (
    TEXT_OUTPUT,
    Backend,
    ConfigError,
    InferenceError,
    InferenceRequest,
    InferenceResponse,
    Inspectable,
    InstanceContext,
    InternalError,
    InvalidRequestError,
    ModelConfig,
    ModelLoadError,
    Outcome,
    RequestCancelledError,
    ResponseStream,
    Tensor,
    Traits,
)
from penstock_backends.tensorrt_llm.answer import OutputEncoder
from penstock_backends.tensorrt_llm.backend import NO_ID, NOT_DECOUPLED
from penstock_backends.tensorrt_llm.declared_tensors import complete_tensors
from penstock_backends.tensorrt_llm.generation import CANCELLED
from penstock_backends.tensorrt_llm.parameter_text import is_unset, read_parameter
from penstock_backends.tensorrt_llm.request import Prompt, flag
from penstock_backends.tensorrt_llm.settings import EngineSettings
from penstock_backends.tensorrt_llm.text_face import ACCUMULATE, TextFace

MODEL: Final = "tensorrt_llm_model_name"
"""Parameter of a model: the language model that answers, named as by upstream's BLS model."""

_EXCLUDE: Final = "exclude_input_in_output"
_PARAMETERS: Final = (MODEL, ACCUMULATE, _EXCLUDE)
_SAME: Final = (
    "max_tokens",
    "min_tokens",
    "n",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "stop",
)
_OTHER: Final = {"bad": "bad_words", "guided_decoding": "structured_outputs"}
_NOTHING: Final = (
    "pad_id",
    "length_penalty",
    "early_stopping",
    "beam_search_diversity_rate",
    "logprobs",
    "temperature",
    "top_k",
    "top_p",
    "end_id",
)
"""Tensors that are read elsewhere here, or say nothing without padding and without beams."""
_REFUSED: Final = {"use_beam_search": "beam_width"}
_MOST_SEQUENCES: Final = 128
_DEEPEST: Final = 16
"""Models that may call one another in a chain that this is a part of."""


class TensorRtLlmFaceBackend(Inspectable, Backend):
    """Gives each request to a language model with the tensors of Triton's vLLM backend.

    So clients of the removed TensorRT-LLM backend find their tensors, whichever engine answers.
    """

    traits = Traits(serial=False)

    @classmethod
    async def complete_config(
        cls, config: ModelConfig, version_path: Path, settings: Mapping[str, str]
    ) -> ModelConfig:
        return complete_tensors(config, False, TextFace.inputs, TextFace.outputs)

    @classmethod
    def completes_by_reading(cls, config: ModelConfig, version_path: Path) -> bool:
        return True

    @classmethod
    def check_config(cls, config: ModelConfig) -> None:
        name = read_parameter(config, MODEL, str)
        if name is None:
            raise ConfigError(
                f"the backend '{config.backend}' needs the parameter '{MODEL}': the language model"
                " that answers"
            )
        if name == config.name:
            raise ConfigError(f"parameter '{MODEL}' cannot be the model itself")
        for given, parameter in config.parameters.items():
            known = given in _PARAMETERS or given.startswith("penstock.")
            if not known and not is_unset(parameter.string_value):
                raise ConfigError(f"the backend '{config.backend}' has no parameter '{given}'")

    async def initialize(self, context: InstanceContext) -> None:
        if context.infer is None:
            raise ModelLoadError("this backend calls another model, which needs a server")
        self._infer: Callable[[InferenceRequest], ResponseStream] = context.infer
        self._config = context.config
        self._model = read_parameter(context.config, MODEL, str) or ""
        self._face = TextFace()
        self._encoder = OutputEncoder(context.config)
        self._settings = EngineSettings({"max_batch_size": _MOST_SEQUENCES}, context.version_path)
        self._running: dict[str, set[ResponseStream]] = {}

    async def execute(self, requests: Sequence[InferenceRequest]) -> Sequence[Outcome]:
        return [self._outcome(request) for request in requests]

    def _outcome(self, request: InferenceRequest) -> Outcome:
        try:
            if flag(request, "stop"):
                return self._stop(request.id)
            prompt = self._face.read(request, self._settings)
            if prompt.streaming and not self._config.decoupled:
                raise InvalidRequestError(NOT_DECOUPLED)
            return self._answer(request, prompt, self._infer(self._asked(request, prompt)))
        except InferenceError as error:
            return error

    def _asked(self, request: InferenceRequest, prompt: Prompt) -> InferenceRequest:
        """The request for the language model."""
        scope = request.scope.part()
        if len(scope.call_chain) >= _DEEPEST:
            raise InvalidRequestError("models call one another without an end")
        wanted = prompt.wanted
        sampling = _vllm_sampling(prompt.sampling)
        flags = {"stream": prompt.streaming, "exclude_input_in_output": True}
        asked = {
            "return_cumulative_logprob": wanted.log_probs,
            "return_logprobs": wanted.log_probs,
            "return_num_input_tokens": wanted.num_input_tokens,
            "return_num_output_tokens": wanted.num_output_tokens or wanted.log_probs,
        }
        flags |= {name: True for name, value in asked.items() if value}
        if wanted.log_probs:
            sampling["logprobs"] = 1
        inputs = {name: Tensor.from_numpy(np.array([value])) for name, value in flags.items()}
        inputs["text_input"] = Tensor.from_strings([str(prompt.text)])
        inputs["sampling_parameters"] = Tensor.from_strings([json.dumps(sampling)])
        return InferenceRequest(
            self._model, id=request.id, inputs=inputs, priority=request.priority, scope=scope
        )

    async def _answer(
        self, request: InferenceRequest, prompt: Prompt, stream: ResponseStream
    ) -> AsyncIterator[InferenceResponse]:
        respond = self._face.answer(self._encoder, prompt, self._config)
        running = self._running.setdefault(request.id, set())
        running.add(stream)
        found = _Found()
        try:
            async for response in stream:
                if response.error is not None:
                    raise response.error
                found.add(response)
                yield respond(found)
        except RequestCancelledError as error:
            stopped = stream not in running
            raise RequestCancelledError(CANCELLED) if stopped else error from None
        finally:
            stream.close()
            running.discard(stream)
            if not running and self._running.get(request.id) is running:
                del self._running[request.id]

    def _stop(self, client_id: str) -> InferenceError:
        """End the requests with this id, and this one (TL-06)."""
        if not client_id:
            return InvalidRequestError(NO_ID)
        running = self._running.get(client_id, set())
        for stream in list(running):
            running.discard(stream)
            stream.abort(RequestCancelledError(CANCELLED))
        return RequestCancelledError(CANCELLED)


def _vllm_sampling(given: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling parameters in vLLM's names; raises `InvalidRequestError` for what it has not.

    As in TensorRT-LLM, a request that says nothing of it is answered greedily.
    """
    sampling: dict[str, Any] = {name: given[name] for name in _SAME if name in given}
    sampling |= {name: given[own] for own, name in _OTHER.items() if own in given}
    for name in given:
        if name not in (*_SAME, *_OTHER, *_NOTHING):
            raise InvalidRequestError(
                f"input '{_REFUSED.get(name, name)}' is not supported by the language model"
            )
    sampling |= {name: given[name] for name in ("top_k", "top_p") if given.get(name)}
    chosen = given.get("temperature")
    if chosen is not None or not ("top_k" in sampling or "top_p" in sampling):
        sampling["temperature"] = chosen or 0.0
    end = given.get("end_id")
    if end is not None and end >= 0:
        sampling["stop_token_ids"] = [end]
    elif end is not None:
        sampling["ignore_eos"] = True
    return sampling


class _Found:
    """An engine's output as it is, made of a language model's responses; tokens are counted."""

    context_logits = None

    def __init__(self) -> None:
        self.outputs: list[Any] = []
        self.prompt_token_ids: Sequence[int] = ()
        self.finished = False

    def add(self, response: InferenceResponse) -> None:
        """Add a response, whose text goes on behind that of the one before."""
        outputs = response.outputs
        if TEXT_OUTPUT not in outputs:
            raise InternalError(f"the language model has answered without '{TEXT_OUTPUT}'")
        pieces = outputs[TEXT_OUTPUT].elements()
        if not self.outputs:
            self.outputs = [_sequence() for _ in pieces]
        if len(pieces) != len(self.outputs):
            raise InternalError("the language model has answered with another number of texts")
        for sequence, piece in zip(self.outputs, pieces, strict=True):
            sequence.text += piece.decode("utf-8", "replace")
        self._count(outputs)
        self.finished = response.final

    def _count(self, outputs: Mapping[str, Tensor]) -> None:
        made, prompt = outputs.get("num_output_tokens"), outputs.get("num_input_tokens")
        sums, places = outputs.get("cumulative_logprob"), outputs.get("logprobs")
        if prompt is not None:
            self.prompt_token_ids = range(int(prompt.numpy().ravel()[0]))
        for index, sequence in enumerate(self.outputs):
            if made is not None:
                sequence.token_ids += [0] * int(made.numpy().ravel()[index])
            if sums is not None:
                sequence.cumulative_logprob = float(sums.numpy().ravel()[index])
            if places is not None:
                sequence.logprobs += _chosen(places.elements()[index])


def _sequence() -> Any:
    return SimpleNamespace(
        text="",
        token_ids=[],
        cumulative_logprob=None,
        logprobs=[],
        generation_logits=None,
        request_perf_metrics=None,
    )


def _chosen(text: bytes) -> list[float]:
    """The log probability of the chosen token at each place, which stands first."""
    places: list[dict[str, dict[str, float]]] = json.loads(text) or []
    first = [next(iter(one.values()), None) for one in places]
    return [math.nan if one is None else float(one.get("logprob", math.nan)) for one in first]
