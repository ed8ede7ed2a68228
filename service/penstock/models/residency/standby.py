"""`StandbyModel`: a model that is not loaded, for frontends: its answers wait for the load."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing

from penstock.core.config import ModelConfig
from penstock.core.errors import (
    DeadlineExceededError,
    InferenceError,
    UnavailableError,
    as_inference_error,
)
from penstock.core.request import InferenceRequest, RequestScope
from penstock.core.stream import ResponseStream
from penstock.models.serving.served_model import ServedModel

Bring = Callable[[RequestScope], Awaitable[ServedModel]]
"""Loads the model for a request; raises `InferenceError` where it cannot be, or not in time."""


class StandbyModel:
    """Takes requests at once, and passes them on when the model is there.

    Of a model whose backend completes its configuration, `config` is what its file says until the
    model was loaded once.
    """

    def __init__(self, config: ModelConfig, bring: Bring) -> None:
        self.config = config
        self.decoupled = config.decoupled
        self._bring = bring

    def infer(self, request: InferenceRequest) -> ResponseStream:
        return _Relay(self._bring, request, lambda model: model.infer(request)).stream

    def exchange(self, request: InferenceRequest) -> ResponseStream:
        return _Relay(self._bring, request, lambda model: model.exchange(request)).stream


class _Relay:
    """Waits for a model, has it answer one request, and passes the answer on to `stream`."""

    def __init__(
        self,
        bring: Bring,
        request: InferenceRequest,
        answer: Callable[[ServedModel], ResponseStream],
    ) -> None:
        self.stream = ResponseStream()
        self._answer: ResponseStream | None = None
        running = self._run(bring, request, answer)
        self._task = asyncio.get_running_loop().create_task(running)
        self.stream.connect(self._leave, on_stop=self._stop)

    async def _run(
        self,
        bring: Bring,
        request: InferenceRequest,
        answer: Callable[[ServedModel], ResponseStream],
    ) -> None:
        try:
            model = await _before(request.scope.deadline, bring(request.scope))
            with closing(answer(model)) as found:
                self._answer = found
                self.stream.model_version = found.model_version
                async for response in found:
                    self.stream.send(response)
                    await self.stream.room()
            self.stream.end()
        except InferenceError as error:
            self.stream.fail(error)
        except asyncio.CancelledError:  # the reader has left, or the server stops loading
            self.stream.fail(UnavailableError("the model was not loaded: the server is stopping"))
            raise
        except Exception as error:
            self.stream.fail(as_inference_error(error))

    def _leave(self) -> None:
        """The reader has left: the request is cancelled, the load goes on."""
        self._task.cancel()

    def _stop(self, stream: ResponseStream) -> None:
        if self._answer is None:
            stream.close()
        else:
            self._answer.stop()


async def _before(deadline: float | None, coming: Awaitable[ServedModel]) -> ServedModel:
    """What is waited for; raises `DeadlineExceededError` when the request's deadline passes."""
    try:
        async with asyncio.timeout_at(deadline):
            return await coming
    except TimeoutError:
        raise DeadlineExceededError("Deadline Exceeded") from None
