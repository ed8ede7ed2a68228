"""`FairShare`: which tenant's request is next, by a weighted virtual counter of tokens.

After the virtual token counter of "Fairness in Serving Large Language Models" (OSDI 2024), with a
guess of the output's length that is charged in advance and corrected. Knows no clock, task or lock.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from math import inf
from typing import Final

from penstock.scheduling.tokens.limits import Refusal
from penstock.scheduling.tokens.places import Places, Reserve
from penstock.scheduling.tokens.tenants import FairnessPolicy, TenantPolicy

TURNS_BEFORE_LOWER: Final = 15
"""Requests of higher bands in a row, while a lower band waits; then that has one turn."""

_FIRST_GUESS: Final = 64.0
_KEPT: Final = 0.9
"""Share of the former guess of an output's length that stays with each new observation."""


class FairRequest:
    """A request as the scheduler counts it, from its arrival to its end; times are in seconds.

    `tokens` are those of the prompt, estimated until they are `counted`; `size` are its bytes, 0 if
    it came as ids. Of one that was cancelled, tokens may be counted when it is `over`.
    """

    __slots__ = (
        "ahead",
        "arrived",
        "band",
        "cached",
        "charged",
        "counted",
        "generated",
        "guess",
        "handed_over",
        "over",
        "size",
        "started",
        "tenant",
        "tokens",
    )

    def __init__(self, tenant: Tenant, band: int, tokens: int, size: int, arrived: float) -> None:
        self.tenant = tenant
        self.band = band
        self.tokens = tokens
        self.size = size
        self.arrived = arrived
        self.ahead = self.cached = self.generated = 0
        self.charged = self.guess = 0.0
        self.handed_over = self.started = self.counted = self.over = False


class Tenant:
    """One tenant's counter, queues and places. `counter` is in weighted tokens by its weight.

    `label` is how metrics call it.
    """

    __slots__ = (
        "counter",
        "guess",
        "label",
        "name",
        "policy",
        "queued",
        "queued_tokens",
        "queues",
        "running",
        "usage",
    )

    def __init__(self, name: str, label: str, policy: TenantPolicy, usage: TenantUsage) -> None:
        self.name = name
        self.label = label
        self.policy = policy
        self.usage = usage
        self.counter = 0.0
        self.guess = _FIRST_GUESS
        self.queues: dict[int, OrderedDict[FairRequest, None]] = {}
        self.queued = self.queued_tokens = self.running = 0

    @property
    def active(self) -> bool:
        return bool(self.queued or self.running)


class TenantUsage:
    """What a tenant has used of a model, and how its requests have ended: counters."""

    __slots__ = (
        "cached_tokens",
        "cancelled_requests",
        "failed_requests",
        "generated_tokens",
        "prompt_tokens",
        "rejected",
        "requests",
    )

    def __init__(self) -> None:
        self.requests = self.cancelled_requests = self.failed_requests = 0
        self.prompt_tokens = self.cached_tokens = self.generated_tokens = 0
        self.rejected: Counter[Refusal] = Counter()


class FairShare:
    """The queues of all tenants, and the choice between them.

    `usages` are by the tenants' labels in metrics: their names as they can be written there, or
    `other` beyond `MOST_LABELS`.
    """

    MOST_IDLE: Final = 1024
    """Tenants without requests whose counters are kept."""
    MOST_LABELS: Final = 100

    def __init__(self, policy: FairnessPolicy) -> None:
        self._policy = policy
        self._reserve = Reserve(policy)
        names = list(policy.tenants)[: self.MOST_LABELS]
        self.usages = {_written(name): TenantUsage() for name in names}
        self._tenants: OrderedDict[str, Tenant] = OrderedDict()
        self._waiting: dict[str, Tenant] = {}
        self._bands: dict[int, int] = {}
        self._active: dict[str, Tenant] = {}
        self._level = 0.0
        self._passed = 0

    @property
    def queued(self) -> int:
        """Requests that wait here."""
        return sum(self._bands.values())

    def tenant(self, name: str) -> Tenant:
        """The tenant of this name, with its counter if it is known."""
        tenant = self._tenants.get(name)
        if tenant is None:
            label = self._label(name)
            usage = self.usages.setdefault(label, TenantUsage())
            tenant = Tenant(name, label, self._policy.of(name), usage)
            self._tenants[name] = tenant
            tenant.counter = self._level
        self._tenants.move_to_end(name)
        if len(self._tenants) > 2 * self.MOST_IDLE:
            self._forget_idle()
        return tenant

    def push(self, request: FairRequest) -> None:
        """Queue a request; a tenant that had none here is lifted to the lowest that has."""
        tenant = request.tenant
        if not tenant.queued:
            self._lift(tenant)
            self._waiting[tenant.name] = tenant
        tenant.queues.setdefault(request.band, OrderedDict())[request] = None
        tenant.queued += 1
        tenant.queued_tokens += request.tokens
        self._bands[request.band] = self._bands.get(request.band, 0) + 1
        self._note_activity(tenant)

    def join(self, request: FairRequest) -> None:
        """Count a request as handed over at once, without a queue."""
        self._charge(request)
        request.tenant.running += 1
        self._note_activity(request.tenant)
        request.handed_over = True

    def pop(self, running: int, capacity: int) -> FairRequest | None:
        """The next request, where the engine runs `running` of at most `capacity` (0: unknown).

        `None` where nothing waits, or only tenants with their share of places, of which some are
        kept free for those with fewer.
        """
        if not self._waiting:
            return None
        places = self._places(running, capacity)
        if not places.any:
            return None
        choice = self._choose(places)
        if choice is None:
            return None
        band, tenant = choice
        self._passed = 0 if band == min(self._bands) else self._passed + 1
        request = next(iter(tenant.queues[band]))
        self.remove(request)
        self._charge(request)
        self._level = max(self._level, tenant.counter)
        tenant.running += 1
        self._reserve.turn(capacity)
        self._note_activity(tenant)
        request.handed_over = True
        return request

    def remove(self, request: FairRequest) -> None:
        """Take a request out of its queue."""
        tenant, band = request.tenant, request.band
        queue = tenant.queues[band]
        del queue[request]
        if not queue:
            del tenant.queues[band]
        tenant.queued -= 1
        tenant.queued_tokens -= request.tokens
        if not tenant.queued:
            del self._waiting[tenant.name]
        self._bands[band] -= 1
        if not self._bands[band]:
            del self._bands[band]
        self._note_activity(tenant)

    def progressed(self, request: FairRequest) -> None:
        """The engine has counted tokens of a request that was handed over, and may be over."""
        guess = 0.0 if request.over else request.guess
        self._settle(request, max(guess, request.generated))

    def ended(self, request: FairRequest, *, complete: bool) -> None:
        """A request that was handed over is answered or cancelled: what it has used is known."""
        tenant = request.tenant
        tenant.running -= 1
        request.over = True
        self._note_activity(tenant)
        if complete:
            tenant.guess = tenant.guess * _KEPT + request.generated * (1 - _KEPT)
        if not (request.started or complete):
            tenant.counter -= request.charged / tenant.policy.weight
            request.charged = 0.0
            return
        self._settle(request, request.generated)

    # -- the counter --------------------------------------------------------------------------

    def _lift(self, tenant: Tenant) -> None:
        """No credit for time away, beyond the tenant's burst."""
        lowest = min((other.counter for other in self._waiting.values()), default=self._level)
        tenant.counter = max(tenant.counter, lowest - tenant.policy.burst / tenant.policy.weight)

    def _charge(self, request: FairRequest) -> None:
        request.guess = request.tenant.guess
        self._settle(request, request.guess)

    def _settle(self, request: FairRequest, generated: float) -> None:
        """Charge the difference between what the request costs and what it was charged."""
        policy = self._policy
        prompt = max(request.tokens - request.cached, 0)
        cost = prompt * policy.prompt_weight + generated * policy.output_weight
        tenant = request.tenant
        tenant.counter += (cost - request.charged) / tenant.policy.weight
        request.charged = cost

    # -- the choice ---------------------------------------------------------------------------

    def _choose(self, places: Places) -> tuple[int, Tenant] | None:
        """The band whose turn it is, or the highest in which a tenant may have a place; and who."""
        for band in (self._band(), *sorted(self._bands, reverse=True)):
            if (tenant := self._lowest(band, places)) is not None:
                return band, tenant
        return None

    def _band(self) -> int:
        """The highest band that waits; or, in its turn, the lower one that waits longest."""
        highest = max(self._bands)
        if self._passed < TURNS_BEFORE_LOWER or len(self._bands) == 1:
            return highest
        oldest: dict[int, float] = {}
        for tenant in self._waiting.values():
            for band, queue in tenant.queues.items():
                if band != highest:
                    oldest[band] = min(oldest.get(band, inf), next(iter(queue)).arrived)
        return min(oldest, key=lambda band: oldest[band])

    def _lowest(self, band: int, places: Places) -> Tenant | None:
        """The tenant with the lowest counter in the band; of equal ones that with fewer running."""
        found: Tenant | None = None
        for tenant in self._waiting.values():
            if band not in tenant.queues or not places.free_for(
                tenant.running, tenant.policy.weight
            ):
                continue
            if found is None or (tenant.counter, tenant.running) < (found.counter, found.running):
                found = tenant
        return found

    def _places(self, running: int, capacity: int) -> Places:
        weight = sum(one.policy.weight for one in self._active.values())
        requests, within = self._within_share(capacity, weight)
        self._reserve.seen(requests)
        reserve = self._reserve.places(capacity, within)
        return Places(running, capacity, reserve, weight)

    def _within_share(self, capacity: int, weight: float) -> tuple[int, int]:
        """Requests, and those that run, of tenants which want no more than their share of places.

        Both are 0 where no tenant wants more: then nobody takes their places.
        """
        within = [
            tenant
            for tenant in self._active.values()
            if (tenant.queued + tenant.running) * weight <= capacity * tenant.policy.weight
        ]
        if len(within) == len(self._active):
            return 0, 0
        running = sum(tenant.running for tenant in within)
        return sum(tenant.queued for tenant in within) + running, running

    def _note_activity(self, tenant: Tenant) -> None:
        if tenant.active:
            self._active[tenant.name] = tenant
        else:
            self._active.pop(tenant.name, None)

    def _label(self, name: str) -> str:
        label = _written(name)
        return label if label in self.usages or len(self.usages) < self.MOST_LABELS else "other"

    def _forget_idle(self) -> None:
        idle = [name for name, one in self._tenants.items() if not one.active]
        surplus = max(len(idle) - self.MOST_IDLE, 0)
        for name in idle[:surplus]:
            del self._tenants[name]


def _written(name: str) -> str:
    """A tenant's name as the value of a label; it may be any text."""
    return "".join(one if one.isprintable() and one not in '"\\{},=' else "_" for one in name)
