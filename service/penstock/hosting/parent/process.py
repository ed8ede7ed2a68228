"""`ProcessInstance`: an instance in a process of its own, supervised and restarted."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.core.backend import InstanceContext
from penstock.core.call_chain import CallingInstance
from penstock.core.errors import UnavailableError, no_commands
from penstock.core.log.log_throttle import repeat_note
from penstock.hosting.parent.child import ProcessSpec
from penstock.hosting.parent.in_flight import InFlight
from penstock.hosting.parent.model_process import ModelProcess
from penstock.hosting.parent.services import ModelServices
from penstock.hosting.parent.starter import ProcessStarter
from penstock.inflight.inference import Inference, start_batch, wait_until_answered
from penstock.system.own_cores import OwnCores

__all__ = ["ProcessInstance", "ProcessSpec"]

logger = logging.getLogger(__name__)


_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM})
"""Errors of a machine that lacks something for another process, as it may for a while."""

_SHORTAGE_SECONDS: Final = 1.0
"""Seconds until another try where it lacks something: as often as it takes."""


class ProcessInstance:
    """Runs batches on a backend in a process of its own, which may die at any time.

    Its executing batches then fail with the reason, it is restarted with backoff, and no other
    model is affected. Batches that were sent ahead of their turn are resent to the next process.
    With `own_cores` the server keeps off the cores of its placement, from start to stop.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        context: InstanceContext,
        starter: ProcessStarter,
        services: ModelServices | None = None,
        own_cores: OwnCores | None = None,
    ) -> None:
        self.name = context.name
        self.serial = spec.serial
        self.passive = context.passive
        self.signature = context.signature
        self.on_available: Callable[[], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self.lost = False
        self.alive = self.available = False
        self._spec = spec
        self._context = context
        self._starter = starter
        self._services = services
        self._own_cores = own_cores
        self._has_cores = False
        self._policy = RestartPolicy()
        self._process: ModelProcess | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._hangs = 0
        self._restarts = 0
        self._in_flight = InFlight(
            serial=spec.serial,
            ahead=spec.ahead,
            limit=spec.execution_timeout,
            window=spec.window,
        )
        self._down = "it is not loaded"
        self._origin = {"model": context.config.name, "instance": context.name}

    @property
    def memory(self) -> object | None:
        """An identity of the process, since its memory is the model's."""
        return self._process

    @property
    def caller(self) -> CallingInstance | None:
        return None if self._process is None else self._process.caller

    @property
    def why_unavailable(self) -> str:
        """The reason that clients are given while `available` is false."""
        return self._down

    @property
    def pid(self) -> int | None:
        """The model process's id while it serves."""
        return self._process.pid if self._process else None

    @property
    def process(self) -> ProcessState:
        return ProcessState(self.pid, self._restarts)

    async def start(self) -> None:
        """Start the process and load the model; raises what the backend raised."""
        self._share_cores(taken=True)
        started = False
        try:
            process = await self._start_process()
            started = True
        finally:
            if not started:
                self._share_cores(taken=False)
        self._use(process)
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise())

    def execute(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
        """Start executing a batch; the callback `done` asks for the next one."""
        now = time.monotonic_ns()
        start_batch(batch, now, self.name)
        if (process := self._process) is not None:
            self._in_flight.send(batch, done)
            if process.heartbeat.timer is None:
                process.heartbeat.watch()
            return
        for inference in batch:
            inference.fail(self._unavailable())
        done()

    async def healthy(self) -> bool:
        """Whether the process is alive and its backend reports that it can serve."""
        return self._process is not None and await self._process.probe()

    async def control(self, action: str, arguments: Mapping[str, Any]) -> Any:
        """Have the backend carry out a command; raises what it raises."""
        if not self._spec.controlled:
            raise no_commands(action)
        if self._process is None:
            raise self._unavailable()
        return await self._process.commands.ask(action, arguments)

    def shrink(self) -> None:
        """Free the caches of its process, which goes on meanwhile."""
        if self._process is not None:
            self._process.shrink()

    def metrics(self) -> Mapping[str, float]:
        """The metrics that the backend sent last, and those of its process.

        The latter are the blocks of shared memory that it holds, whether it is hung, and the number
        of hangs of the instance's processes.
        """
        process = self._process
        if process is None:
            return {}
        return {
            **process.metrics,
            "penstock_shared_memory_blocks": process.blocks,
            "penstock_hung_processes": process.hung,
            "penstock_process_hangs_total": self._hangs,
        }

    def histograms(self) -> Mapping[str, Sequence[Any]]:
        """The states of the histograms that the backend sent last."""
        return {} if self._process is None else self._process.histograms

    async def answered(self) -> None:
        """Wait until every request that the process was sent has been answered."""
        await wait_until_answered(self._in_flight.requests)

    async def stop(self) -> None:
        """Stop the process, politely first."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.cancel()
            await asyncio.wait([supervisor])
        process = self._process
        self._use(None)
        model = self._context.config.name
        self._in_flight.fail_all(UnavailableError(f"model '{model}' is being unloaded"))
        if process is not None:
            await process.stop()
        self._share_cores(taken=False)

    def _share_cores(self, *, taken: bool) -> None:
        """Have the server keep off this instance's own cores, or use them again."""
        cores = self._context.placement.cores
        if self._own_cores is None or cores is None or taken == self._has_cores:
            return
        self._has_cores = taken
        every = range(cores[0], cores[1] + 1)
        if taken:
            self._own_cores.take(every)
        else:
            self._own_cores.give_back(every)

    def _use(self, process: ModelProcess | None) -> None:
        """Send batches to this process from now on; `None`: there is none that serves."""
        self._process = process
        self.alive = self.available = process is not None

    async def _start_process(self) -> ModelProcess:
        """A process whose model is loaded; none is left behind where that fails."""
        process = ModelProcess(
            self._spec, self._context, self._starter, self._in_flight, self._on_hung, self._services
        )
        failure: BaseException | None = None
        try:
            await process.open()
        except BaseException as error:  # compiled code must not wait in a handler
            failure = error
        if failure is None:
            return process
        await process.kill()
        raise failure

    async def _supervise(self) -> None:
        """Wait for the process to end, and start another, as often as the policy allows."""
        while (process := self._process) is not None:
            reason = await process.ended()
            self._use(None)
            delay = self._policy.failed(time.monotonic())
            self._report(reason, delay)
            self._in_flight.lose(self._unavailable())
            process.abandon()
            await process.kill()
            while delay is not None and not self.alive:
                await asyncio.sleep(delay)
                delay = await self._restart()
        self._give_up()

    def _give_up(self) -> None:
        self.lost = True
        self._in_flight.fail_all(self._unavailable())
        if self.on_lost is not None:
            self.on_lost()

    async def _restart(self) -> float | None:
        """Restart; the delay before the next try if this one fails, `None` otherwise."""
        try:
            self._use(await self._start_process())
        except Exception as error:  # whatever the backend raised this time
            reason = f"could not be started again: {error}"
            if isinstance(error, OSError) and error.errno in _SHORTAGES:  # not the model's fault
                self._report_shortage(reason)
                return _SHORTAGE_SECONDS
            delay = self._policy.failed(time.monotonic())
            self._report(reason, delay)
            return delay
        self._restarts += 1
        text = "model process of instance '%s' is back, pid %s"
        logger.info(text, self.name, self.pid, extra=self._origin)
        self._in_flight.resend()
        if self._in_flight.executing and self._process is not None:
            self._process.heartbeat.watch()
        if self.on_available is not None:
            self.on_available()
        return None

    def _on_hung(self, hung: bool) -> None:
        """Take the instance out of service while its process is hung, then back into it."""
        process = self._process
        if process is None:  # it has just ended
            return
        self.available = not hung
        if hung:
            self._hangs += 1
            logger.error(
                "instance '%s': its model process, pid %s, has given no sign for %g s while"
                " requests wait: it is stopped, or its code holds Python's lock; %s",
                self.name,
                process.pid,
                self._spec.hang_seconds,
                "it is ended" if self._spec.restart_hung else "it is not ready until it gives one",
                extra=self._origin,
            )
            if self._spec.restart_hung:
                process.end_hung()
            return
        text = "instance '%s': its model process gives signs again"
        logger.warning(text, self.name, extra=self._origin)
        if self.on_available is not None:
            self.on_available()

    def _report(self, reason: str, delay: float | None) -> None:
        if delay is None:
            policy = self._policy
            fate = f"it failed {policy.limit} times in {policy.window:.0f} s and stays down"
        else:
            fate = "it is being restarted"
        self._down = f"its model process {reason}; {fate}"
        logger.error("instance '%s': %s", self.name, self._down, extra=self._origin)

    def _report_shortage(self, reason: str) -> None:
        self._down = f"its model process {reason}; it is tried again"
        note = repeat_note("no process", self.name)
        if note is not None:
            logger.error("instance '%s': %s%s", self.name, self._down, note, extra=self._origin)

    def _unavailable(self) -> UnavailableError:
        model = self._context.config.name
        return UnavailableError(f"model '{model}', instance '{self.name}': {self._down}")


@dataclass(slots=True)
class RestartPolicy:
    """Backoff between restarts, and when to give up. Times are seconds on any one clock.

    The first restart comes at once; each further failure inside `window` doubles the delay from
    `first_delay` up to `longest_delay`; `limit` failures inside `window` are the end.
    """

    limit: int = 5
    window: float = 60.0
    first_delay: float = 0.1
    longest_delay: float = 10.0
    _failures: deque[float] = field(default_factory=deque)

    def failed(self, now: float) -> float | None:
        """Seconds to wait before the next start; `None` to give up."""
        failures = self._failures
        failures.append(now)
        while failures[0] < now - self.window:
            failures.popleft()
        count = len(failures)
        if count >= self.limit:
            return None
        if count == 1:
            return 0.0
        return float(min(self.first_delay * 2 ** (count - 2), self.longest_delay))


@dataclass(frozen=True, slots=True)
class ProcessState:
    """`pid` is `None` while no process serves; `restarts` counts processes after the first."""

    pid: int | None
    restarts: int
