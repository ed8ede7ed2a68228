"""`TokenScheduler`: admission in tokens in front of a language model's scheduler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from penstock.core.errors import InferenceError, RequestCancelledError
from penstock.core.request import NO_SCOPE, Sender
from penstock.inflight.inference import Inference
from penstock.scheduling import Scheduler
from penstock.scheduling.tokens.fair_share import FairRequest, TenantUsage
from penstock.scheduling.tokens.limits import Refusal
from penstock.scheduling.tokens.tenant_accounts import usage_metrics
from penstock.scheduling.tokens.token_queue import TokenQueue, prompt_bytes, prompt_ids


class TokenScheduler:
    """Refuses what a `TokenQueue` has no room for, and hands over the rest in its order.

    With tenants, requests wait here, where they know their turn, and not in the engine; `capacity`
    tells how many that runs at once, 0 while it is not known.
    """

    def __init__(self, scheduler: Scheduler, queue: TokenQueue) -> None:
        self._scheduler = scheduler
        self._queue = queue
        self.capacity: Callable[[], int] = _unknown
        self._loop = asyncio.get_running_loop()
        self._held: dict[FairRequest, Inference] = {}
        self._handing_over = False

    def schedule(self, inference: Inference) -> None:
        request = inference.request
        now = self._loop.time()
        scope = request.scope
        left = None if scope.deadline is None else scope.deadline - now
        size, ids = prompt_bytes(request), prompt_ids(request)
        fair = self._queue.admit(scope.sender, size, ids, now, left)
        if self._queue.fair:
            tenant = fair.tenant
            scope.sender = Sender(tenant.name, fair.band, tenant.label)
            self._held[fair] = inference
            inference.on_end = partial(self._left_queue, fair)
            self._hand_over()
            return
        self._watch(inference, fair)
        try:
            self._scheduler.schedule(inference)
        except InferenceError:
            inference.on_left = None
            self._queue.ended(fair, complete=False)
            raise

    def abandon(self, error: InferenceError) -> None:
        for inference in list(self._held.values()):
            inference.fail(error)
        self._scheduler.abandon(error)

    async def drain(self) -> None:
        await self._scheduler.drain()

    def metrics(self) -> Mapping[str, float]:
        """Counters and gauges by name, with their labels."""
        queue = self._queue
        numbers: dict[str, float] = {
            "penstock_llm_queued_requests": queue.waiting_requests,
            "penstock_llm_queued_tokens": queue.waiting_tokens,
        }
        if not queue.fair:
            numbers.update(_refusals(queue.rejected, ""))
        for tenant, usage in queue.usages.items():
            numbers.update(_refusals(usage.rejected, f',tenant="{tenant}"'))
            numbers.update(usage_metrics(tenant, usage))
            for end, count in (
                ("cancelled", usage.cancelled_requests),
                ("failed", usage.failed_requests),
            ):
                numbers[f'penstock_llm_tenant_{end}_requests_total{{tenant="{tenant}"}}'] = count
        return numbers

    # -- one request --------------------------------------------------------------------------

    def _watch(self, inference: Inference, fair: FairRequest) -> None:
        """Follow a request that is handed over: its tokens, and its end."""
        counted = inference.on_usage = partial(self._counted, fair)
        scope = inference.request.scope
        if scope is not NO_SCOPE and scope.report_usage is None:
            scope.report_usage = counted  # of instances on threads
        inference.on_left = partial(self._ended, fair, inference, inference.on_left)

    def _left_queue(self, fair: FairRequest) -> None:
        """A request that waited here was cancelled, has expired or was abandoned."""
        if (inference := self._held.pop(fair, None)) is not None:
            _count_end(fair.tenant.usage, inference.error)
            self._queue.ended(fair, complete=False)

    def _counted(self, fair: FairRequest, prompt: int, cached: int, generated: int) -> None:
        if self._queue.counted(fair, prompt, cached, generated, self._loop.time()):
            self._hand_over()

    def _ended(
        self, fair: FairRequest, inference: Inference, then: Callable[[], None] | None
    ) -> None:
        _count_end(fair.tenant.usage, inference.error)
        self._queue.ended(fair, complete=inference.error is None)
        if then is not None:
            then()
        self._hand_over()

    def _hand_over(self) -> None:
        """Hand over what may go; a request that fails on the way makes room for another."""
        if self._handing_over or not self._held:
            return
        self._handing_over = True
        capacity = self.capacity()
        while self._held and (fair := self._queue.next(capacity)) is not None:
            inference = self._held.pop(fair)
            inference.on_end = None
            self._watch(inference, fair)
            inference.request.scope.waited = time.monotonic_ns() - inference.start
            try:
                self._scheduler.schedule(inference)
            except InferenceError as error:
                inference.fail(error)
        self._handing_over = False


def _unknown() -> int:
    return 0


def _refusals(rejected: Mapping[Refusal, int], more: str) -> Iterator[tuple[str, int]]:
    for reason in Refusal:
        name = f'penstock_llm_rejected_total{{reason="{reason.value}"{more}}}'
        yield name, rejected.get(reason, 0)


def _count_end(usage: TenantUsage, error: InferenceError | None) -> None:
    if isinstance(error, RequestCancelledError):
        usage.cancelled_requests += 1
    elif error is not None:
        usage.failed_requests += 1
