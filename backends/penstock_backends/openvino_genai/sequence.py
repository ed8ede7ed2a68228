"""`TokenSequence`: detokenizes one generated sequence and applies its stop conditions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from penstock_backends.language_model import (
    Candidate,
    Delivery,
    Detokenizer,
    Logprobs,
    StopStrings,
)
from penstock_backends.openvino_genai.pipeline import Handle, StepOutput
from penstock_backends.openvino_genai.sampling import Sampling

DecodeToken = Callable[[int], str]
"""The text of one token alone."""

_TOGETHER: Final = 8
"""Tokens that are decoded together where only the whole text is wanted: between two steps, which
leave nothing in the CPU's caches, the first takes ten times as long as each after it."""


class TokenSequence:
    """The generated sequence of one candidate of a request.

    `handle` is set while the sequence is in the pipeline. It is `ready` for that once it has a
    `prompt`. `report` decodes the tokens of reported log probabilities; without it only their sum
    is kept. `keep_ids` keeps the tokens' ids. Tokens are decoded one by one where their text is
    wanted at once: by a stream, or by stop strings.
    """

    __slots__ = (
        "_at_once",
        "_detokenizer",
        "_generated",
        "_keep_ids",
        "_report",
        "_stops",
        "_undecoded",
        "candidate",
        "delivery",
        "handle",
        "logprobs",
        "prompt",
        "sampling",
    )

    def __init__(
        self,
        delivery: Delivery,
        candidate: Candidate,
        prompt: Sequence[int],
        sampling: Sampling,
        detokenizer: Detokenizer,
        *,
        logprobs: bool = False,
        report: DecodeToken | None = None,
        keep_ids: bool = False,
    ) -> None:
        self.delivery = delivery
        self.candidate = candidate
        self.prompt = prompt
        self.sampling = sampling
        self.logprobs = logprobs
        self.handle: Handle | None = None
        self._report = report
        self._detokenizer = detokenizer
        self._generated = 0
        self._keep_ids = keep_ids
        keep = sampling.include_stop_str_in_output
        self._stops = StopStrings(sampling.stop, keep=keep) if sampling.stop else None
        self._at_once = 1 if delivery.answer.stream or sampling.stop else _TOGETHER
        self._undecoded: list[int] = []

    @property
    def ready(self) -> bool:
        """Whether the prompt's tokens are there."""
        return bool(self.prompt)

    def prepare(self, prompt: Sequence[int], length: int) -> None:
        """Take the prompt, behind which there is room for `length` tokens."""
        self.prompt = prompt
        self._detokenizer.begin(prompt)
        sampling = self.sampling
        if length < sampling.max_tokens:
            least = min(sampling.min_tokens, length)
            self.sampling = replace(sampling, max_tokens=length, min_tokens=least)

    @property
    def finished(self) -> bool:
        """Whether the candidate has a finish reason."""
        return self.candidate.finish_reason is not None

    def accept(self, output: StepOutput) -> int:
        """Decode a step's tokens into text; returns the number of tokens used."""
        tokens = output.tokens
        if self.logprobs:
            self._add_logprobs(output)
        used = self._accept_tokens(tokens, output)
        if self._keep_ids:
            self.candidate.token_ids.extend(tokens[:used])
        return used

    def _accept_tokens(self, tokens: Sequence[int], output: StepOutput) -> int:
        for place, token in enumerate(tokens, 1):
            last = place == len(tokens) and output.finish_reason == "stop"
            self._accept_token(token, stops=last)
            if self.finished:
                return place
        if output.finish_reason is not None:
            self._finish(output.finish_reason)
            if tokens and output.finish_reason == "stop":
                token = tokens[-1]
                self.candidate.stop_reason = (
                    token if token in self.sampling.stop_token_ids else None
                )
        return len(tokens)

    def _accept_token(self, token: int, *, stops: bool) -> None:
        self._generated += 1
        self.candidate.tokens += 1
        if not stops or self.sampling.include_stop_str_in_output:
            self._undecoded.append(token)
            if len(self._undecoded) >= self._at_once:
                self._decode()

    def _decode(self) -> None:
        """Add the text of the tokens that have none yet."""
        text = "".join(map(self._detokenizer.step, self._undecoded))
        self._undecoded.clear()
        stops = self._stops
        if stops is not None:
            text = stops.feed(text, armed=self._generated > self.sampling.min_tokens)
            if stops.found is not None:
                self.candidate.finish_reason = "stop"
                self.candidate.stop_reason = stops.found
        self.candidate.add(text, tokens=0)

    def _finish(self, reason: str) -> None:
        if self._undecoded:
            self._decode()
        if self._stops is not None:
            self.candidate.add(self._stops.flush(), tokens=0)
        self.candidate.finish_reason = reason

    def _add_logprobs(self, output: StepOutput) -> None:
        places: list[Logprobs] = []
        if self._report is not None:
            rank = 1 if self.sampling.greedy else None
            for token, logprob in zip(output.tokens, output.logprobs, strict=True):
                decoded = self._report(token)
                places.append({token: {"logprob": logprob, "rank": rank, "decoded_token": decoded}})
            self.candidate.add_logprobs(places, output.score)
        else:
            self.candidate.cumulative_logprob = output.score
