"""`MeteredEngine`: the running engine as vLLM's application sees it, with its requests counted."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from contextvars import ContextVar
from copy import copy
from typing import Any, Final

from penstock.backend import InferenceRequest
from penstock_backends.language_model import UsageReporter, usage_of
from penstock_backends.vllm.engine import VllmEngine

CURRENT: Final[ContextVar[InferenceRequest | None]] = ContextVar("exchange", default=None)
"""The request of the exchange that is being answered."""


class MeteredEngine:
    """Everything of an `AsyncLLM`; of what it generates, tokens are reported to the server."""

    def __init__(self, engine: VllmEngine, llm: Any) -> None:
        self._engine = engine
        self._llm = llm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)

    def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **more: Any
    ) -> AsyncGenerator[Any, None]:
        """vLLM's outputs."""
        request = CURRENT.get()
        usage = None if request is None else usage_of(request)
        if usage is not None:
            sampling_params = _told_early(sampling_params)
        outputs = self._llm.generate(prompt, sampling_params, request_id, **more)
        return self._followed(outputs, None if usage is None else _Count(usage, sampling_params))

    def encode(self, *arguments: Any, **more: Any) -> AsyncGenerator[Any, None]:
        """vLLM's outputs of a pooling model."""
        return self._followed(self._llm.encode(*arguments, **more), None)

    async def _followed(
        self, outputs: AsyncGenerator[Any, None], count: _Count | None
    ) -> AsyncGenerator[Any, None]:
        engine = self._engine
        engine.begin()
        finished = False
        try:
            async with aclosing(outputs):
                async for output in outputs:
                    if count is not None:
                        count.add(output)
                    finished = output.finished
                    yield output
        except Exception as error:  # vLLM's own, which its application tells of
            engine.failure(error)
            raise
        except BaseException:  # the client has disconnected
            engine.statistics.cancelled += not finished
            raise


class _Count:
    """Reports the tokens of outputs, which hold either the new ones of a sequence or all."""

    def __init__(self, usage: UsageReporter, sampling: Any) -> None:
        self._usage = usage
        self._adds = sampling.output_kind.name == "DELTA"
        self._seen: dict[int, int] = {}

    def add(self, output: Any) -> None:
        """Report what is new in an output."""
        usage, new = self._usage, 0
        for one in output.outputs:
            size = len(one.token_ids)
            new += size if self._adds else size - self._seen.get(one.index, 0)
            self._seen[one.index] = size
        usage.prompt = len(output.prompt_token_ids or ()) or usage.prompt
        usage.cached = output.num_cached_tokens or 0
        usage.add(new, finished=output.finished)


def _told_early(sampling: Any) -> Any:
    """The parameters of one answer that is wanted whole, such that its first token is seen."""
    from vllm.sampling_params import RequestOutputKind

    if sampling.n != 1 or sampling.output_kind is not RequestOutputKind.FINAL_ONLY:
        return sampling
    told = copy(sampling)
    told.output_kind = RequestOutputKind.CUMULATIVE
    return told
