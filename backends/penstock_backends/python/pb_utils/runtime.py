"""Interfaces between `pb_utils` and the model process: runtime, replies, calls of other models."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from penstock.core.request import InferenceRequest as CoreRequest
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.responses import InferenceResponse


class Reply(Protocol):
    """The reply to one request of the server."""

    decoupled: bool
    iterative: bool
    closed: bool
    sent: int
    outputs: Sequence[str]

    def send(self, response: InferenceResponse | None, *, final: bool) -> None:
        """Send a response, the final flag, or both."""

    def is_cancelled(self) -> bool:
        """Whether the client has cancelled the request."""


class ModelCall(Protocol):
    """A request in flight to another model (BLS), and the queue of its responses."""

    def next(self) -> InferenceResponse | None:
        """The next response, waiting for it; `None` after the last."""

    async def next_async(self) -> InferenceResponse | None:
        """As `next`, without blocking the event loop."""

    async def arrived(self) -> None:
        """Wait until `next` would not block."""

    def take_bare_end(self) -> bool:
        """Whether the called model sent its final flag alone; true once, after the last one."""

    def cancel(self) -> None:
        """Notify the called model to stop; responses that it still sends can be read."""

    def discard(self) -> None:
        """Cancel the request in the called model, and drop its responses."""


class Runtime(Protocol):
    """The process that a model runs in."""

    model_directory: str

    def call(
        self,
        request: CoreRequest,
        *,
        decoupled: bool,
        blocks: bool = False,
        on_loop: bool = False,
    ) -> ModelCall:
        """Send a request to another model; `blocks` if this thread waits for the response,
        `on_loop` if an event loop will, beside other work.
        """

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Keep a reference to a task until it is done, as event loops do not."""

    def control(self, verb: str, *arguments: Any) -> Any:
        """Load or unload a model, or query its readiness; raises `TritonModelException`."""

    def metric(self, operation: str, *arguments: Any) -> Any:
        """Apply an operation of `penstock.metrics.custom` to a metric of the model."""

    def log(self, level: int, message: str, file: str, line: int) -> None:
        """Write to the server's log; `level` is one of `logging`."""


_current: list[Runtime] = []


def install(runtime: Runtime | None) -> None:
    """Make `runtime` the one that `pb_utils` uses, or none; a model process has just one."""
    _current[:] = [] if runtime is None else [runtime]


def current() -> Runtime:
    """The runtime of this model process."""
    if not _current:
        raise TritonModelException("triton_python_backend_utils works inside a model process only")
    return _current[0]
