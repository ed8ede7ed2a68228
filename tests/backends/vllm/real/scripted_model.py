"""vLLM's application over the running engine, with a model that says what a test wants."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.core.application import BackendApplication
from penstock.testing import RunningInstance
from penstock_backends.vllm import VllmBackend
from penstock_backends.vllm.arguments.openai_arguments import OpenAiArguments
from penstock_backends.vllm.openai.application import vllm_application


class ScriptedModel:
    """Everything of an `AsyncLLM`, but of each request the answer is `pieces`, one a step.

    `asked` are the sampling parameters of the last one. With an `error`, it fails instead.
    """

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self.pieces: Sequence[str] = ()
        self.asked: Any = None
        self.error: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)

    async def generate(
        self, prompt: Any, sampling: Any, request_id: str, **_: Any
    ) -> AsyncGenerator[Any, None]:
        """vLLM's outputs, of which those of a stream hold what is new."""
        self.asked = sampling
        if self.error is not None:
            raise self.error
        streams = sampling.output_kind.name == "DELTA"
        pieces = self.pieces if streams else ["".join(self.pieces)]
        for number, piece in enumerate(pieces, 1):
            yield self._output(request_id, piece, finished=number == len(pieces))

    def _output(self, request_id: str, piece: str, *, finished: bool) -> Any:
        from vllm.outputs import CompletionOutput, RequestOutput

        ids = self._llm.get_tokenizer().encode(piece, add_special_tokens=False)
        reason = "stop" if finished else None
        said = CompletionOutput(0, piece, ids, None, None, finish_reason=reason)
        return RequestOutput(request_id, None, [1], None, [said], finished, num_cached_tokens=0)


@asynccontextmanager
async def scripted(
    instance: RunningInstance, **openai: Any
) -> AsyncIterator[tuple[BackendApplication, ScriptedModel]]:
    """The application with these front-end arguments, and its model."""
    backend = instance.backend
    assert isinstance(backend, VllmBackend)
    engine = copy(backend._engine)
    engine._llm = model = ScriptedModel(engine.llm)
    arguments = replace(backend._arguments, openai=OpenAiArguments(values=openai))
    made = partial(vllm_application, engine, arguments, "m", backend._media_limits)
    application = BackendApplication(None, "m", made)
    await application.start()
    yield application, model
    await application.close()
