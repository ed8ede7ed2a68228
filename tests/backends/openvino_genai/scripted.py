"""A scripted pipeline behind the interface of the real one."""

from __future__ import annotations

from collections.abc import Sequence

from penstock_backends.language_model import (
    Answer,
    Delivery,
    Detokenizer,
    EngineStatistics,
    GenerationRecord,
    GenerationRequest,
    GenerationTimes,
)
from penstock_backends.openvino_genai.pipeline import LOST, StepOutput
from penstock_backends.openvino_genai.sampling import Sampling, read_sampling
from penstock_backends.openvino_genai.sequence import TokenSequence


class Words(Detokenizer):
    """Token 0 reads `0 `, token 1 reads `1 `, and so on."""

    def __init__(self) -> None:
        pass

    def begin(self, prompt: Sequence[int]) -> None:
        pass

    def step(self, token: int) -> str:
        return f"{token} "


def sampling(**given: object) -> Sampling:
    return read_sampling(given, vocabulary=1000, max_num_seqs=8, top_k_cap=50)


def sequences(
    count: int = 1,
    record: GenerationRecord | None = None,
    *,
    stream: bool = True,
    words: Words | None = None,
    **given: object,
) -> list[TokenSequence]:
    """The sequences of one request."""
    candidates = Answer(GenerationRequest("P", stream=stream, prepend_prompt=False), 1, count)
    times = GenerationTimes(EngineStatistics(), 1, record=record)
    delivery = Delivery(candidates, lambda: None, record=record, times=times)
    chosen = sampling(**given)
    words = words or Words()
    return [TokenSequence(delivery, c, [1], chosen, words) for c in candidates.candidates]


def unready(**given: object) -> list[TokenSequence]:
    """The same, without a prompt yet."""
    made = sequences(**given)  # type: ignore[arg-type]
    for sequence in made:
        sequence.prompt = ()
    return made


class ScriptedHandle:
    """Counts from 0 to `max_tokens`, one token at a step."""

    def __init__(self, sampling: Sampling) -> None:
        self.left = sampling.max_tokens
        self.token = 0
        self.ready = False
        self.cancelled = False
        self.lost = False

    def read(self) -> StepOutput | None:
        if self.lost:
            return LOST
        if not self.ready:
            return None
        self.ready = False
        return StepOutput([self.token - 1], finish_reason=None if self.left else "length")

    def cancel(self) -> None:
        self.cancelled = True


class ScriptedPipeline:
    """Steps every handle that is live; `fail_at` is the step that raises."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.handles: list[ScriptedHandle] = []
        self.live: list[ScriptedHandle] = []
        self.steps = 0
        self.fail_at = fail_at
        self.refuse: Exception | None = None

    def add(self, prompt: Sequence[int], sampling: Sampling, *, logprobs: bool) -> ScriptedHandle:
        if self.refuse is not None:
            raise self.refuse
        self.handles.append(ScriptedHandle(sampling))
        self.live.append(self.handles[-1])
        return self.handles[-1]

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.fail_at:
            raise RuntimeError("Check failed at somewhere.cpp:1:\nout of luck\n")
        self.live = [handle for handle in self.live if not handle.cancelled]
        for handle in self.live:
            handle.token, handle.left, handle.ready = handle.token + 1, handle.left - 1, True
        self.live = [handle for handle in self.live if handle.left]

    @property
    def busy(self) -> bool:
        return bool(self.live)

    @property
    def cache_usage(self) -> float:
        return 0.5
