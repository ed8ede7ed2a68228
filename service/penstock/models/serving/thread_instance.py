"""`ThreadInstance`: a backend object in the server's process, with a thread for blocking work."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from penstock.core.application import DESCRIBE, SPEAKS, BackendApplication, told_facts
from penstock.core.backend import (
    Backend,
    Controllable,
    InstanceContext,
    Outcome,
    WithMetrics,
    WithReadiness,
)
from penstock.core.call_chain import CallingInstance
from penstock.core.delivery import deliver, execute_batch
from penstock.core.engine_facts import FACTS
from penstock.core.errors import no_commands
from penstock.core.log.log_throttle import log_fault
from penstock.core.placement import Placement
from penstock.core.request import InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.hosting.parent.process import ProcessState
from penstock.inflight.inference import Inference, start_batch, wait_until_answered
from penstock.system.allocator import free_caches
from penstock.system.eager_start import start_eagerly

logger = logging.getLogger(__name__)


class ThreadInstance:
    """Executes batches on a backend that releases the GIL while it computes."""

    def __init__(self, backend: type[Backend], context: InstanceContext) -> None:
        self.name = context.name
        self.serial = backend.traits.serial
        self._eager = backend.traits.eager
        self.passive = context.passive
        self.signature = context.signature
        self.on_available: Callable[[], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self.caller: CallingInstance | None = None
        self.process: ProcessState | None = None
        self.lost = False  # a thread of the server does not die
        made = self._backend = backend()
        self._controllable = made if isinstance(made, Controllable) else None
        self._engine = made if isinstance(made, WithMetrics) else WithMetrics()
        self._readiness = made if isinstance(made, WithReadiness) else WithReadiness()
        self._application = BackendApplication(made, context.config.name)
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=context.name)
        self._context = replace(context, run=self._run)
        self._executing: set[asyncio.Task[None]] = set()
        self._streaming: set[Inference] = set()
        self._streams: dict[asyncio.Task[None], ResponseStream] = {}
        self._ready = False

    @property
    def alive(self) -> bool:
        return self._ready

    @property
    def available(self) -> bool:
        return self._ready

    @property
    def memory(self) -> object | None:
        return self._backend if self._ready else None

    @property
    def why_unavailable(self) -> str:
        """The reason that clients read while `available` is false."""
        return "it is not loaded"

    async def start(self) -> None:
        """Load the model; raises what the backend raises."""
        try:
            if self._context.placement != Placement():
                await self._run(self._context.placement.apply)
            await self._backend.initialize(self._context)
            await self._application.start()
        except BaseException:
            self._executor.shutdown(wait=False)
            raise
        self._ready = True

    def execute(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
        """Start executing a batch; `done` is called when the instance can take the next.

        Exchanges over HTTP are no part of an execution: the backend's application answers them.
        """
        now = time.monotonic_ns()
        start_batch(batch, now, self.name)
        if any(inference.request.exchange is not None for inference in batch):
            batch = self._answer_exchanges(batch)
            if not batch:
                done()
                return
        work = self._execute(batch, now, done)
        loop = asyncio.get_running_loop()
        task = start_eagerly(loop, work) if self._eager else _start_task(work)
        if task is not None and not task.done():
            self._executing.add(task)
            task.add_done_callback(self._executing.discard)

    def _answer_exchanges(self, batch: Sequence[Inference]) -> Sequence[Inference]:
        """Answer the exchanges of a batch; the rest of it."""
        rest: list[Inference] = []
        for inference in batch:
            if inference.request.exchange is None:
                rest.append(inference)
                continue
            self._answer(inference, self._application.answer(inference.request))
        return rest

    async def _execute(
        self, batch: Sequence[Inference], begun: int, done: Callable[[], None]
    ) -> None:
        try:
            input_end = time.monotonic_ns()
            requests = [inference.request for inference in batch]
            outcomes = await execute_batch(self._backend, requests, self.name)
            self._answer_all(batch, outcomes, begun, input_end)
        finally:
            done()

    def _answer_all(
        self, batch: Sequence[Inference], outcomes: Sequence[Outcome], begun: int, input_end: int
    ) -> None:
        output_start = time.monotonic_ns()
        for inference, outcome in zip(batch, outcomes, strict=True):
            inference.compute_input_end = input_end
            if isinstance(outcome, InferenceResponse):  # streams are still computing
                inference.compute_output_start = output_start
            self._answer(inference, outcome)
        end = time.monotonic_ns()
        rows = sum(inference.rows for inference in batch)
        statistics = batch[0].statistics
        if statistics.decoupled:
            for inference in batch:
                inference.compute_output_start, inference.compute_end = output_start, end
        statistics.executed(rows, input_end - begun, output_start - input_end, end - output_start)

    async def control(self, action: str, arguments: Mapping[str, Any]) -> Any:
        """Have the backend carry out a command; raises what it raises."""
        if action == DESCRIBE:
            return await self._application.description()
        if action == SPEAKS:
            return self._application.opened
        if action == FACTS:
            return told_facts(self._backend)
        if self._controllable is None:
            raise no_commands(action)
        return await self._controllable.control(action, arguments)

    def shrink(self) -> None:
        """Free caches of the server's process, on the instance's thread."""
        self._executor.submit(free_caches)

    async def healthy(self) -> bool:
        """Whether the backend reports that it can serve."""
        try:
            serves = self._ready and not self._readiness.unready()
            return serves and await self._readiness.healthy()
        except Exception as error:  # a backend may raise anything
            log_fault(logger, error, "the health check of instance '%s' failed", self.name)
            return False

    def metrics(self) -> Mapping[str, float]:
        """Gauges that the backend reports about itself, by name."""
        try:
            return self._engine.metrics()
        except Exception as error:  # a backend may raise anything
            log_fault(logger, error, "reading the metrics of instance '%s' failed", self.name)
            return {}

    def histograms(self) -> Mapping[str, Sequence[Any]]:
        """The states of the backend's histograms, by name."""
        try:
            return {name: one.state() for name, one in self._engine.histograms().items()}
        except Exception:  # a backend may raise anything
            logger.exception("reading the histograms of instance '%s' failed", self.name)
            return {}

    async def answered(self) -> None:
        """Wait until every request given to it is answered."""
        while self._executing:
            await asyncio.wait(list(self._executing))
        await wait_until_answered(self._streaming)

    async def stop(self) -> None:
        """Release the model; cancels open streams."""
        self._ready = False
        for stream in list(self._streams.values()):
            if not stream.ended:
                stream.close()
        if self._streams:
            await asyncio.wait(self._streams)
        await self._application.close()
        try:
            await self._backend.finalize()
        finally:
            self._executor.shutdown(wait=False)

    def _answer(self, inference: Inference, outcome: Outcome) -> None:
        inference.from_backend = True
        task = deliver(outcome, inference.stream)
        if not inference.stream.ended:
            self._streaming.add(inference)
            inference.also_at_end(partial(self._streaming.discard, inference))
        if task is not None:
            self._streams[task] = inference.stream
            task.add_done_callback(self._streams.pop)

    async def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, partial(function, *args))


def _start_task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task for the work, started eagerly where Python can, so that it may be done already."""
    loop = asyncio.get_running_loop()
    if sys.version_info >= (3, 12):
        return asyncio.Task(work, loop=loop, eager_start=True)
    return loop.create_task(work)
