"""`ProcessInstance`: an instance in a process of its own; started, watched, restarted, killed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

from penstock.core.backend import InstanceContext
from penstock.core.call_chain import Caller
from penstock.core.errors import UnavailableError
from penstock.hosting.parent.child import ProcessSpec
from penstock.hosting.parent.model_process import Connection
from penstock.hosting.parent.opening import open_or_kill
from penstock.hosting.parent.restart import RestartPolicy
from penstock.hosting.parent.services import ModelServices
from penstock.inflight.inference import Inference, answered
from penstock.system.reaper import Reaper

__all__ = ["ProcessInstance", "ProcessSpec"]

logger = logging.getLogger(__name__)


class ProcessInstance:
    """Runs batches on a backend in a process of its own, which may die at any time.

    What it was executing then fails with the reason, it is started again with backoff, and nobody
    else notices. Batches that were sent ahead of their turn go to the next process.
    """

    def __init__(
        self,
        spec: ProcessSpec,
        context: InstanceContext,
        reaper: Reaper,
        services: ModelServices | None = None,
    ) -> None:
        self.name = context.name
        self.serial = spec.serial
        self.passive = context.passive
        self.signature = context.signature
        self.on_available: Callable[[], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        self.lost = False
        self._spec = spec
        self._context = context
        self._reaper = reaper
        self._services = services
        self._policy = RestartPolicy()
        self._connection: Connection | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._again: list[Sequence[Inference]] = []
        self._down = "it is not loaded"

    @property
    def alive(self) -> bool:
        return self._connection is not None

    @property
    def available(self) -> bool:
        return self._connection is not None

    @property
    def memory(self) -> object | None:
        """The link to the process, since its memory is the model's."""
        return self._connection

    @property
    def caller(self) -> Caller | None:
        return None if self._connection is None else self._connection.caller

    @property
    def why_unavailable(self) -> str:
        """The reason to tell clients while `available` is false."""
        return self._down

    @property
    def pid(self) -> int | None:
        """The model process's id while it serves."""
        return self._connection.pid if self._connection else None

    async def start(self) -> None:
        """Start the process and load the model; raises what the backend raised."""
        self._connection = await self._connect()
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise())

    def execute(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
        """Start answering a batch; `done` is called when the next may come."""
        now = time.monotonic_ns()
        for inference in batch:
            inference.started(now)
        connection = self._connection
        if connection is None:
            for inference in batch:
                inference.fail(self._unavailable())
            done()
            return
        connection.execute(batch, done)

    async def healthy(self) -> bool:
        """Whether the process lives and its backend says that it can serve."""
        return self._connection is not None and await self._connection.probe()

    def metrics(self) -> Mapping[str, float]:
        """The numbers that the backend told last, and what the process holds of ours."""
        connection = self._connection
        if connection is None:
            return {}
        return {**connection.metrics, "penstock_shared_memory_blocks": connection.blocks}

    async def answered(self) -> None:
        """Wait until every request that it was given has been answered."""
        if self._connection is not None:
            await answered(self._connection.open_requests)

    async def stop(self) -> None:
        """End the process, politely first."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.cancel()
            await asyncio.wait([supervisor])
        self._drop(UnavailableError(f"model '{self._context.config.name}' is being unloaded"))
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.stop()

    async def _connect(self) -> Connection:
        connection = Connection(self._spec, self._context, self._reaper, self._services)
        await open_or_kill(connection)
        return connection

    async def _supervise(self) -> None:
        """Wait for the process to end, and start another, as often as the policy allows."""
        while self._connection is not None:
            reason = await self._connection.ended()
            failed, self._connection = self._connection, None
            delay = self._policy.failed(time.monotonic())
            self._report(reason, delay)
            self._again += failed.not_begun()
            failed.fail_all(self._unavailable())
            await failed.kill()
            while delay is not None and self._connection is None:
                await asyncio.sleep(delay)
                delay = await self._restart()
        self._give_up()

    def _repeat(self) -> None:
        """Send what the last process has not begun; what nobody waits for any more stays away."""
        assert self._connection is not None
        batches, self._again = self._again, []
        for batch in batches:
            if wanted := [inference for inference in batch if not inference.abandoned]:
                self._connection.repeat(wanted)

    def _drop(self, error: UnavailableError) -> None:
        """No process will come for what waits for one."""
        batches, self._again = self._again, []
        for batch in batches:
            for inference in batch:
                inference.fail(error)

    def _give_up(self) -> None:
        self.lost = True
        self._drop(self._unavailable())
        if self.on_lost is not None:
            self.on_lost()

    async def _restart(self) -> float | None:
        """Start again; the delay before the next try if this one fails, `None` otherwise."""
        try:
            self._connection = await self._connect()
        except Exception as error:  # whatever the backend raised this time
            delay = self._policy.failed(time.monotonic())
            self._report(f"could not be started again: {error}", delay)
            return delay
        logger.info("model process of instance '%s' is back, pid %s", self.name, self.pid)
        self._repeat()
        if self.on_available is not None:
            self.on_available()
        return None

    def _report(self, reason: str, delay: float | None) -> None:
        if delay is None:
            policy = self._policy
            fate = f"it failed {policy.limit} times in {policy.window:.0f} s and stays down"
        else:
            fate = "it is being restarted"
        self._down = f"its model process {reason}; {fate}"
        logger.error("instance '%s': %s", self.name, self._down)

    def _unavailable(self) -> UnavailableError:
        model = self._context.config.name
        return UnavailableError(f"model '{model}', instance '{self.name}': {self._down}")
