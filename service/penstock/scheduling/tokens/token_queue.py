"""`TokenQueue`: what waits for a language model, from arrival to first token. Knows no clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import ceil
from typing import Final

from penstock.core.errors import DeadlineExceededError, ExhaustedError
from penstock.core.request import Sender
from penstock.scheduling.tokens.estimate import TokenRatio
from penstock.scheduling.tokens.fair_share import FairRequest, FairShare, Tenant, TenantUsage
from penstock.scheduling.tokens.limits import QueueLimits, Refusal
from penstock.scheduling.tokens.prediction import FirstTokenPrediction
from penstock.scheduling.tokens.tenants import ANONYMOUS, FairnessPolicy

UNKNOWN: Final = Sender(ANONYMOUS, 0)
_LONGEST_WAIT: Final = 60
"""The most seconds after which a client is asked to try again."""


class TokenQueue:
    """Admits requests under the limits, orders them by tenants, and learns from what is counted.

    Without a `policy` there are no tenants: what is admitted may be handed over at once. Handed to
    the engine, a request waits until its first token. Times are in seconds of any clock.
    """

    _MOST_UNSTARTED: Final = 4
    _UNSTARTED_TOKENS: Final = 8192
    """With tenants, the engine has at most so many requests, or as many more as have so many tokens
    together, that wait there: it knows no tenants."""

    def __init__(self, model: str, limits: QueueLimits, policy: FairnessPolicy | None) -> None:
        self._model = model
        self._limits = limits
        self.fair = policy is not None
        self._share = FairShare(policy or FairnessPolicy())
        self._ratio = TokenRatio()
        self._prediction = FirstTokenPrediction()
        self.waiting_requests = self.waiting_tokens = 0
        self.running = self._unstarted = self._unstarted_tokens = 0
        self.rejected: Counter[Refusal] = Counter()

    @property
    def usages(self) -> Mapping[str, TenantUsage]:
        """What tenants have used, by their labels; nothing without tenants."""
        return self._share.usages if self.fair else {}

    def tenant(self, sender: Sender | None) -> Tenant:
        """The tenant of a request."""
        return self._share.tenant((sender or UNKNOWN).tenant)

    def admit(
        self, sender: Sender | None, size: int, ids: int, now: float, left: float | None
    ) -> FairRequest:
        """Admit a request with a prompt of `size` bytes, or of `ids` token ids.

        `left` are the seconds to its deadline. Raises `ExhaustedError` for want of room, and
        `DeadlineExceededError` for a first token that is predicted for after the deadline.
        """
        tenant, band = self.tenant(sender), (sender or UNKNOWN).band
        tokens = ids or self._ratio.estimate(size)
        refusal = self._limits.refusal(self.waiting_requests, self.waiting_tokens, tokens)
        if refusal is not None:
            raise self._full(tenant, refusal, tokens, now)
        request = FairRequest(tenant, band, tokens, 0 if ids else size, now)
        request.ahead = (
            self._unstarted_tokens + tenant.queued_tokens if self.fair else self.waiting_tokens
        )
        if left is not None:
            self._check_deadline(request, now, left)
        tenant.usage.requests += 1
        self.waiting_requests += 1
        self.waiting_tokens += tokens
        if self.fair:
            self._share.push(request)
        else:
            self._share.join(request)
            self._handed_over(request)
        return request

    def next(self, capacity: int) -> FairRequest | None:
        """The request that the engine, which runs at most `capacity`, is given next, if any."""
        if (
            self._unstarted >= self._MOST_UNSTARTED
            and self._unstarted_tokens >= self._UNSTARTED_TOKENS
        ) or (not capacity and self._unstarted >= self._MOST_UNSTARTED):
            return None
        request = self._share.pop(self.running, capacity)
        if request is not None:
            self._handed_over(request)
        return request

    def counted(
        self, request: FairRequest, prompt: int, cached: int, generated: int, now: float
    ) -> bool:
        """The engine reports a request's tokens; returns whether it has just started."""
        starts = not (request.started or request.over)
        if starts:
            self._start(request, now)
        if not request.counted:
            request.counted = True
            if request.size:
                self._ratio.observe(request.size, prompt)
            request.tokens = request.cached = 0  # so far they were a guess
        usage = request.tenant.usage
        usage.prompt_tokens += prompt - request.tokens  # further prompts of it may come later
        usage.cached_tokens += cached - request.cached
        usage.generated_tokens += generated - request.generated
        request.tokens, request.cached, request.generated = prompt, cached, generated
        self._share.progressed(request)
        return starts

    def ended(self, request: FairRequest, *, complete: bool) -> None:
        """A request is answered (`complete`), cancelled or failed, wherever it was."""
        if not request.handed_over:
            self._share.remove(request)
            self._stop_waiting(request)
            return
        self.running -= 1
        if not request.started:
            self._stop_waiting(request)
            self._unstarted -= 1
            self._unstarted_tokens -= request.tokens
        self._share.ended(request, complete=complete)

    def _handed_over(self, request: FairRequest) -> None:
        self.running += 1
        self._unstarted += 1
        self._unstarted_tokens += request.tokens

    def _start(self, request: FairRequest, now: float) -> None:
        self._prediction.observe(request.ahead, request.tokens, now - request.arrived, now)
        self._stop_waiting(request)
        self._unstarted -= 1
        self._unstarted_tokens -= request.tokens
        request.started = True

    def _stop_waiting(self, request: FairRequest) -> None:
        self.waiting_requests -= 1
        self.waiting_tokens -= request.tokens

    # -- refusals -----------------------------------------------------------------------------

    def _full(self, tenant: Tenant, refusal: Refusal, tokens: int, now: float) -> ExhaustedError:
        self.rejected[refusal] += 1
        tenant.usage.rejected[refusal] += 1
        rate = self._prediction.rate(now)
        wait = ceil(self.waiting_tokens / rate) if rate > 0 else 1
        more = f", and this prompt has about {tokens}" if refusal is Refusal.TOKENS else ""
        return ExhaustedError(
            f"the queue of '{self._model}' is full: {self.waiting_requests} requests,"
            f" {self.waiting_tokens} tokens wait{more}",
            retry_after=min(max(wait, 1), _LONGEST_WAIT),
        )

    def _check_deadline(self, request: FairRequest, now: float, left: float) -> None:
        predicted = self._prediction.predict(request.ahead, request.tokens, now)
        if predicted <= left:
            return
        self.rejected[Refusal.DEADLINE] += 1
        request.tenant.usage.rejected[Refusal.DEADLINE] += 1
        raise DeadlineExceededError(
            f"the first token of '{self._model}' is predicted in {predicted:.3g} s, and the"
            f" deadline is in {max(left, 0):.3g} s"
        )
