"""`LimitedInstance`: an instance behind the rate limiter, which executes with its resources."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.core.call_chain import CallingInstance
from penstock.core.config import ModelRateLimiter
from penstock.hosting.parent.process import ProcessState
from penstock.inflight.inference import Inference
from penstock.models.serving.instance import ModelInstance
from penstock.scheduling.rate_limiter import RateLimiter, Resource, ResourceClaim


class LimitedInstance:
    """Unavailable to its scheduler while other instances hold the resources that it needs."""

    def __init__(self, instance: ModelInstance, limiter: RateLimiter, claim: ResourceClaim) -> None:
        self.name = instance.name
        self.serial = instance.serial
        self.passive = instance.passive
        self.signature: Hashable = (instance.signature, claim.signature)
        self._instance = instance
        self._limiter = limiter
        self._claim = claim
        self._loop = asyncio.get_running_loop()

    @property
    def on_available(self) -> Callable[[], None] | None:
        return self._instance.on_available

    @on_available.setter
    def on_available(self, call: Callable[[], None] | None) -> None:
        self._instance.on_available = self._claim.on_offer = call

    @property
    def on_lost(self) -> Callable[[], None] | None:
        return self._instance.on_lost

    @on_lost.setter
    def on_lost(self, call: Callable[[], None] | None) -> None:
        self._instance.on_lost = call

    @property
    def lost(self) -> bool:
        return self._instance.lost

    @property
    def alive(self) -> bool:
        return self._instance.alive

    @property
    def memory(self) -> object | None:
        return self._instance.memory

    @property
    def caller(self) -> CallingInstance | None:
        return self._instance.caller

    @property
    def available(self) -> bool:
        """Whether it may execute now; if not, the rate limiter queues it for its resources."""
        return self._instance.available and self._limiter.may_run(self._claim)

    @property
    def why_unavailable(self) -> str:
        return self._instance.why_unavailable

    @property
    def process(self) -> ProcessState | None:
        return self._instance.process

    def execute(self, batch: Sequence[Inference], done: Callable[[], None]) -> None:
        """Start executing a batch; the resources are held until it is done."""
        self._limiter.acquire(self._claim)
        self._instance.execute(batch, partial(self._done, done))

    def _done(self, done: Callable[[], None]) -> None:
        self._limiter.release(self._claim)
        done()  # its own scheduler queues it first, or others would always precede it
        self._loop.call_soon(self._limiter.offer)

    async def start(self) -> None:
        """Register its resources and load the model; raises if the limits can never be met."""
        self._limiter.register(self._claim)
        try:
            await self._instance.start()
        except BaseException:
            self._limiter.unregister(self._claim)
            raise

    async def healthy(self) -> bool:
        return await self._instance.healthy()

    async def control(self, action: str, arguments: Mapping[str, Any]) -> Any:
        return await self._instance.control(action, arguments)

    def shrink(self) -> None:
        self._instance.shrink()

    def metrics(self) -> Mapping[str, float]:
        return self._instance.metrics()

    def histograms(self) -> Mapping[str, Sequence[Any]]:
        return self._instance.histograms()

    async def answered(self) -> None:
        await self._instance.answered()

    async def stop(self) -> None:
        """Release the model and unregister its resources."""
        try:
            await self._instance.stop()
        finally:
            self._limiter.unregister(self._claim)
            self._limiter.offer()


def resource_claim(config: ModelRateLimiter, device: int) -> ResourceClaim:
    """The resources that an instance on `device` needs; of one named twice, the larger count."""
    needs: dict[Resource, int] = {}
    for wanted in config.resources:
        resource = (wanted.name, None if wanted.global_ else device)
        needs[resource] = max(wanted.count, needs.get(resource, 0))
    return ResourceClaim(needs, max(1, config.priority))
