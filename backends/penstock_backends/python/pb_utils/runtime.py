"""What the model process offers to the model: the seam between `pb_utils` and the link."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from penstock.core.request import InferenceRequest as CoreRequest
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.responses import InferenceResponse


class Reply(Protocol):
    """One request that the server waits to have answered."""

    decoupled: bool
    iterative: bool
    closed: bool
    sent: int
    outputs: Sequence[str]

    def send(self, response: InferenceResponse | None, *, final: bool) -> None: ...

    def is_cancelled(self) -> bool: ...


class Call(Protocol):
    """One request that the model has made; its responses come one after the other."""

    def next(self) -> InferenceResponse | None:
        """The next response, waiting for it; `None` after the last."""

    async def next_async(self) -> InferenceResponse | None:
        """As `next`, without blocking the event loop."""

    def take_bare_end(self) -> bool:
        """Whether the called model sent its final flag alone; told once, after the last."""

    def cancel(self) -> None: ...


class Runtime(Protocol):
    """The process that a model runs in."""

    model_directory: str

    def call(self, request: CoreRequest, *, decoupled: bool, blocks: bool = False) -> Call:
        """Have the server run a request; `blocks` if this thread waits until it is answered."""

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Hold a task until it is done, whether or not the model does."""

    def control(self, verb: str, *arguments: Any) -> Any:
        """Load, unload or ask for a model; raises `TritonModelException` with the reason."""

    def metric(self, operation: str, *arguments: Any) -> Any:
        """Act on a metric of the model's own."""

    def log(self, level: int, message: str, file: str, line: int) -> None: ...


_current: list[Runtime] = []


def install(runtime: Runtime) -> None:
    """Make `runtime` the one that `pb_utils` reaches; a model process has just one."""
    _current[:] = [runtime]


def current() -> Runtime:
    """The runtime of this model process."""
    if not _current:
        raise TritonModelException("triton_python_backend_utils works inside a model process only")
    return _current[0]
