"""`Answer`: a buffer of generated text and tokens, and the encoder of its responses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.backend import (
    TEXT_OUTPUT,
    DataType,
    InferenceResponse,
    Tensor,
    TextResponse,
    encode_elements,
)
from penstock_backends.language_model.request import GenerationRequest, WantedOutputs

TokenLogprob = Mapping[str, Any]
"""`logprob`, `rank` and `decoded_token` of one token, as vLLM names them."""

Logprobs = Mapping[int, TokenLogprob]
"""The candidate tokens at one position, by token id."""


EncodeAnswer = Callable[["Answer"], InferenceResponse]
"""Makes a response of what is buffered, which is then cleared."""


class Candidate:
    """A buffer of one of the `n` texts of a request: the part that has not been sent yet.

    `cumulative_logprob`, `finish_reason` and `stop_reason` are of the whole text. `token_ids` and
    `reasoning` stay empty unless the client asks for them.
    """

    __slots__ = (
        "cumulative_logprob",
        "finish_reason",
        "logprobs",
        "reasoning",
        "stop_reason",
        "text",
        "token_ids",
        "tokens",
    )

    def __init__(self) -> None:
        self.text: list[str] = []
        self.tokens = 0
        self.token_ids: list[int] = []
        self.reasoning: list[str] = []
        self.logprobs: list[Logprobs] | None = None
        self.cumulative_logprob: float | None = None
        self.finish_reason: str | None = None
        self.stop_reason: int | str | None = None

    @property
    def pending(self) -> bool:
        """Whether there is something to send besides counts."""
        return bool(self.text) or bool(self.token_ids) or bool(self.reasoning)

    def add(self, text: str, tokens: int = 1) -> None:
        """Append the text of `tokens` tokens; it is empty while a character is incomplete."""
        if text:
            self.text.append(text)
        self.tokens += tokens

    def add_logprobs(self, places: Iterable[Logprobs], cumulative: float | None) -> None:
        """Append the probabilities of new tokens; `cumulative` is that of the whole text."""
        if self.logprobs is None:
            self.logprobs = []
        self.logprobs.extend(places)
        self.cumulative_logprob = cumulative

    def clear(self) -> None:
        """Clear the buffer once it was sent."""
        self.text = []
        self.tokens = 0
        if self.token_ids:
            self.token_ids = []
        if self.reasoning:
            self.reasoning = []
        if self.logprobs is not None:
            self.logprobs = []


class Answer:
    """The candidates of one request, and the encoder of their responses.

    `prompt_tokens` and `cached_tokens` are known with the engine's first output at the latest.
    `encode` makes responses in place of tensors.
    """

    def __init__(
        self,
        request: GenerationRequest,
        prompt_tokens: int,
        candidates: int = 1,
        encode: EncodeAnswer | None = None,
    ) -> None:
        self._encode = encode
        self.stream = request.stream
        self.candidates = [Candidate() for _ in range(candidates)]
        self._single = self.candidates[0] if candidates == 1 else None
        self.wanted = request.wanted
        self._plain = request.wanted == WantedOutputs()
        self._prefix = request.prompt if request.prepend_prompt else ""
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = 0
        self._attached: dict[str, Tensor] = {}

    def attach(self, name: str, tensor: Tensor) -> None:
        """Add an output to the next response only."""
        self._attached[name] = tensor
        self._plain = False

    @property
    def finished(self) -> bool:
        """Whether every candidate is finished."""
        if self._single is not None:
            return self._single.finish_reason is not None
        return None not in [candidate.finish_reason for candidate in self.candidates]

    @property
    def due(self) -> bool:
        """Whether a response is due: new text in a stream, or the end."""
        if self.stream:
            if self._single is not None:
                single = self._single
                return bool(single.text) or single.finish_reason is not None or single.pending
            if [True for candidate in self.candidates if candidate.pending]:
                return True
        return self.finished

    def take_response(self) -> InferenceResponse:
        """Drain the buffers into a response; the last one is flagged as final."""
        if self._encode is not None:
            response = self._encode(self)
            for candidate in self.candidates:
                candidate.clear()
            return response
        single = self._single
        if single is not None and self._plain:
            text = (self._prefix + "".join(single.text)).encode()
            single.clear()
            return TextResponse(text, final=single.finish_reason is not None)
        texts = [(self._prefix + "".join(c.text)).encode() for c in self.candidates]
        outputs = {TEXT_OUTPUT: Tensor(DataType.BYTES, (len(texts),), encode_elements(texts))}
        outputs.update(self._wanted_outputs())
        if self._attached:
            outputs.update(self._attached)
            self._attached = {}
        response = InferenceResponse(outputs, final=self.finished)
        for candidate in self.candidates:
            candidate.clear()
        return response

    def _wanted_outputs(self) -> Mapping[str, Tensor]:
        wanted, candidates = self.wanted, self.candidates
        outputs: dict[str, Tensor] = {}
        if wanted.finish_reason:
            outputs["finish_reason"] = _reasons(candidates)
        if wanted.cumulative_logprob:
            outputs["cumulative_logprob"] = _cumulative(candidates)
        if wanted.logprobs:
            outputs["logprobs"] = _logprobs(candidates)
        if wanted.num_input_tokens:
            outputs["num_input_tokens"] = _counts([self.prompt_tokens])
        if wanted.num_output_tokens:
            outputs["num_output_tokens"] = _counts([c.tokens for c in candidates])
        self._add_own_outputs(outputs)
        return outputs

    def _add_own_outputs(self, outputs: dict[str, Tensor]) -> None:
        """Add the outputs that Triton's vLLM backend does not have."""
        wanted, candidates = self.wanted, self.candidates
        if wanted.num_cached_tokens:
            outputs["num_cached_tokens"] = _counts([self.cached_tokens])
        if wanted.token_ids:
            outputs["token_ids"] = _token_ids(candidates)
        if wanted.stop_reason:
            outputs["stop_reason"] = _stop_reasons(candidates)
        if wanted.reasoning_text:
            outputs["reasoning_text"] = _reasoning(candidates)


def _reasons(candidates: Sequence[Candidate]) -> Tensor:
    """Finish reasons; the text `None` for a running candidate, as in Triton's vLLM backend."""
    return Tensor.from_strings(str(candidate.finish_reason) for candidate in candidates)


def _stop_reasons(candidates: Sequence[Candidate]) -> Tensor:
    """Stop strings and token ids, as JSON so that the two differ; `null` for any other end."""
    return Tensor.from_strings(json.dumps(candidate.stop_reason) for candidate in candidates)


def _reasoning(candidates: Sequence[Candidate]) -> Tensor:
    return Tensor.from_strings("".join(candidate.reasoning) for candidate in candidates)


def _token_ids(candidates: Sequence[Candidate]) -> Tensor:
    """The ids of all candidates, one after the other; `num_output_tokens` has their numbers."""
    ids = [token for candidate in candidates for token in candidate.token_ids]
    return Tensor.from_numpy(np.array(ids, dtype=np.int32), DataType.INT32)


def _cumulative(candidates: Sequence[Candidate]) -> Tensor:
    values = [candidate.cumulative_logprob for candidate in candidates]
    known = [float("nan") if value is None else value for value in values]
    return Tensor.from_numpy(np.array(known, dtype=np.float32), DataType.FP32)


def _logprobs(candidates: Sequence[Candidate]) -> Tensor:
    return Tensor.from_strings(json.dumps(candidate.logprobs) for candidate in candidates)


def _counts(values: Sequence[int]) -> Tensor:
    return Tensor.from_numpy(np.array(values, dtype=np.uint32), DataType.UINT32)
