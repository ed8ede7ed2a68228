"""Fakes of the server as a model process sees it: replies, calls, runtime."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from penstock.core.errors import InferenceError
from penstock.core.request import InferenceRequest as CoreRequest
from penstock.metrics.custom import CustomMetrics
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.responses import InferenceResponse


class FakeReply:
    """A reply that records its responses."""

    def __init__(
        self,
        *outputs: str,
        decoupled: bool = False,
        iterative: bool = False,
        room: int = 1000,
    ) -> None:
        self.outputs: Sequence[str] = outputs
        self.decoupled = decoupled
        self.iterative = iterative
        self.closed = False
        self.sent = 0
        self.cancelled = False
        self.responses: list[InferenceResponse] = []
        self._room = asyncio.Semaphore(room)
        self._on_cancel: Callable[[], object] | None = None

    def send(self, response: InferenceResponse | None, *, final: bool) -> None:
        self.closed = final
        if response is not None:
            self.sent += 1
            self.responses.append(response)

    def is_cancelled(self) -> bool:
        return self.cancelled

    async def wait_for_room(self) -> None:
        await self._room.acquire()

    def acknowledge(self) -> None:
        """Return credit for one response."""
        self._room.release()

    def on_cancel(self, callback: Callable[[], object]) -> None:
        self._on_cancel = callback

    def stop(self) -> None:
        """The reader wants no more, and reads on."""
        if self._on_cancel is not None:
            self._on_cancel()

    def cancel(self) -> None:
        """The client leaves."""
        self.cancelled = True
        if self._on_cancel is not None:
            self._on_cancel()

    @property
    def errors(self) -> list[tuple[int, str]]:
        """Code and message of every response that carries an error."""
        found = (response.error() for response in self.responses)
        return [(error.code(), error.message()) for error in found if error]


class FakeCall:
    """A call with all of its responses in the queue."""

    def __init__(self, *responses: InferenceResponse, bare_end: bool = False) -> None:
        self.cancelled = False
        self.discarded = False
        self.gate = asyncio.Event()  # closed, the responses are still to come
        self.gate.set()
        self._bare_end = bare_end
        self._responses = deque(responses)

    def next(self) -> InferenceResponse | None:
        return self._responses.popleft() if self._responses else None

    async def next_async(self) -> InferenceResponse | None:
        await asyncio.sleep(0)
        return self.next()

    async def arrived(self) -> None:
        await self.gate.wait()

    def take_bare_end(self) -> bool:
        bare_end, self._bare_end = self._bare_end, False
        return bare_end

    def cancel(self) -> None:
        self.cancelled = True

    def discard(self) -> None:
        self.discarded = True


class FakeRuntime:
    """A runtime with real metrics and otherwise scripted answers."""

    model_directory = "/models/m/1"

    def __init__(self) -> None:
        self.metrics = CustomMetrics()
        self.operations: list[str] = []
        self.logged: list[tuple[int, str, str, int]] = []
        self.controls: list[tuple[Any, ...]] = []
        self.calls: list[tuple[CoreRequest, bool]] = []
        self.on_loop: list[bool] = []
        self.answer: Any = None
        self.problem: str | None = None
        self.next_call = FakeCall()
        self.kept: list[asyncio.Task[Any]] = []

    def call(
        self,
        request: CoreRequest,
        *,
        decoupled: bool,
        blocks: bool = False,
        on_loop: bool = False,
    ) -> FakeCall:
        self.calls.append((request, decoupled))
        self.on_loop.append(on_loop)
        return self.next_call

    def keep(self, task: asyncio.Task[Any]) -> None:
        self.kept.append(task)

    def control(self, verb: str, *arguments: Any) -> Any:
        self.controls.append((verb, *arguments))
        if self.problem is not None:
            raise TritonModelException(self.problem)
        return self.answer

    def metric(self, operation: str, *arguments: Any) -> Any:
        self.operations.append(operation)
        try:
            return self.metrics.apply("m_0_0", operation, arguments)
        except InferenceError as error:
            raise TritonModelException(error.message) from error

    def log(self, level: int, message: str, file: str, line: int) -> None:
        self.logged.append((level, message, file, line))
