"""`Model`: a model of an in-process server."""

from __future__ import annotations

import asyncio
import queue
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from penstock.core.config import config_to_json
from penstock.core.request import InferenceRequest as CoreRequest
from penstock.in_process.enums import ModelBatchFlag, ModelTxnPropertyFlag
from penstock.in_process.errors import InvalidArgumentError, translated
from penstock.in_process.request import InferenceRequest, core_request
from penstock.in_process.response import (
    AsyncResponseIterator,
    InferenceResponse,
    QueueReader,
    Reader,
    ResponseIterator,
    ResponseReader,
)
from penstock.in_process.running_server import RunningServer
from penstock.in_process.views import model_view
from penstock.server.server import InferenceServer
from penstock.server.statistics_json import statistics_json

Result = TypeVar("Result")
Put = Callable[[InferenceResponse], None]


class ModelOwner(Protocol):
    """The server of a model."""

    def _started(self) -> RunningServer: ...

    def _ask(
        self, question: Callable[[InferenceServer], Coroutine[Any, Any, Result]]
    ) -> Result: ...


class Model:
    """A model, or one version of it. Servers make them; see `Server.model`."""

    def __init__(
        self,
        server: ModelOwner,
        name: str,
        version: int = -1,
        state: str | None = None,
        reason: str | None = None,
    ) -> None:
        self._running = server._started()
        self._server = server
        self.name = name
        self.version = version
        self.state = state
        self.reason = reason

    def __repr__(self) -> str:
        told = {"name": self.name, "version": self.version, "state": self.state}
        return str(told if self.reason is None else {**told, "reason": self.reason})

    # -- inference ----------------------------------------------------------------------------

    def create_request(self, **kwargs: Any) -> InferenceRequest:
        """A request to this model; arguments are the fields of `InferenceRequest`."""
        kwargs.pop("model", None)
        return InferenceRequest(model=self, **kwargs)

    def infer(
        self,
        inference_request: InferenceRequest | None = None,
        raise_on_error: bool = True,
        **kwargs: Any,
    ) -> ResponseIterator:
        """Send a request, or one made of `kwargs`; an iterator of its responses.

        Raises what is wrong with the request. Errors of responses are raised when they are
        iterated over, or are in the responses if not `raise_on_error`.
        """
        request = inference_request or self.create_request(**kwargs)
        sink = request.response_queue
        if sink is not None and not isinstance(sink, queue.SimpleQueue):
            raise InvalidArgumentError("queue.SimpleQueue must be used for response iterator")
        reader = self._send(request, None if sink is None else sink.put)
        return ResponseIterator(self._running.loop, reader, raise_on_error)

    def async_infer(
        self,
        inference_request: InferenceRequest | None = None,
        raise_on_error: bool = True,
        **kwargs: Any,
    ) -> AsyncResponseIterator:
        """As `infer`, with an asynchronous iterator."""
        request = inference_request or self.create_request(**kwargs)
        sink = request.response_queue
        if sink is not None and not isinstance(sink, asyncio.Queue):
            raise InvalidArgumentError("asyncio.Queue must be used for async response iterator")
        reader = self._send(request, None if sink is None else _Across(sink).put)
        return AsyncResponseIterator(self._running.loop, reader, raise_on_error)

    def _send(self, request: InferenceRequest, put: Put | None) -> Reader:
        core = core_request(request)
        with translated():
            return self._running.loop.run(self._begin(request, core, put))

    async def _begin(self, request: InferenceRequest, core: CoreRequest, put: Put | None) -> Reader:
        found = self._running.core.find(core.model_name, core.model_version)
        stream = found.infer(core)
        version = int(stream.model_version or self.version)
        answering = Model(self._server, self.name, version)
        reader = ResponseReader(request, stream, answering, found.decoupled)
        return reader if put is None else QueueReader(reader, put)

    # -- views --------------------------------------------------------------------------------

    def metadata(self) -> dict[str, Any]:
        """Inputs, outputs, platform and versions."""
        return model_view(self._ask(lambda core: core.model_metadata(self.name, self._version)))

    def ready(self) -> bool:
        """Whether it takes requests."""
        return self._ask(lambda core: core.model_ready(self.name, self._version))

    def batch_properties(self) -> ModelBatchFlag:
        """Whether the first dimension is the batch."""
        config = self._ask(lambda core: core.model_config(self.name, self._version))
        return ModelBatchFlag.FIRST_DIM if config.max_batch_size else ModelBatchFlag.UNKNOWN

    def transaction_properties(self) -> ModelTxnPropertyFlag:
        """Whether it answers once."""
        config = self._ask(lambda core: core.model_config(self.name, self._version))
        decoupled = config.decoupled
        return ModelTxnPropertyFlag.DECOUPLED if decoupled else ModelTxnPropertyFlag.ONE_TO_ONE

    def statistics(self) -> dict[str, Any]:
        """The counters of its versions."""
        found = self._ask(lambda core: core.statistics(self.name, self._version))
        return {"model_stats": [statistics_json(each) for each in found]}

    def config(self, config_version: int = 1) -> dict[str, Any]:
        """The configuration; there is one form of it, 1."""
        if config_version != 1:
            raise InvalidArgumentError(
                f"model configuration version {config_version} not supported, supported versions"
                " are: 1"
            )
        config = self._ask(lambda core: core.model_config(self.name, self._version))
        return config_to_json(config, with_defaults=True)

    @property
    def _version(self) -> str:
        return "" if self.version < 0 else str(self.version)

    def _ask(self, question: Callable[[InferenceServer], Coroutine[Any, Any, Result]]) -> Result:
        return self._server._ask(question)


class _Across:
    """Puts responses into a queue of the caller's event loop, in order, as it has room."""

    def __init__(self, sink: asyncio.Queue[Any]) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[InferenceResponse] = deque()
        self._task: asyncio.Task[None] | None = None

    def put(self, response: InferenceResponse) -> None:
        """Put a response, from any thread; nothing once the loop has ended."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._add, response)

    def _add(self, response: InferenceResponse) -> None:
        self._waiting.append(response)
        while self._task is None and self._waiting and not self._sink.full():
            self._sink.put_nowait(self._waiting.popleft())
        if self._task is None and self._waiting:
            self._task = self._loop.create_task(self._put_waiting())

    async def _put_waiting(self) -> None:
        while self._waiting:
            await self._sink.put(self._waiting.popleft())
        self._task = None
