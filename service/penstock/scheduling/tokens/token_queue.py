"""`TokenQueue`: what waits for a language model, from arrival to first token. Knows no clock."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from math import ceil
from typing import Final

from penstock.core.errors import DeadlineExceededError, ExhaustedError
from penstock.core.request import InferenceRequest, Sender
from penstock.core.tensor import DataType
from penstock.scheduling.tokens.fair_share import FairRequest, FairShare, Tenant, TenantUsage
from penstock.scheduling.tokens.limits import QueueLimits, Refusal
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
        """The engine reports a request's tokens; returns whether it has just started.

        Until it knows those of the prompt, which it then reports as 0, the guess holds.
        """
        starts = not (request.started or request.over)
        if starts:
            self._start(request, now)
        if not (prompt or request.counted):
            prompt, cached = request.tokens, request.cached
        elif not request.counted:
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


class FirstTokenPrediction:
    """Predicts from the rate at which recent prompts that had to wait came to their first token.

    Conservative, as refusals depend on it: it predicts nothing before there are `ENOUGH` recent
    observations, nothing for a request that finds no other waiting, and goes by a rate that three
    quarters of the observations do not reach. Times are in seconds.
    """

    ENOUGH: Final = 16
    _MOST: Final = 64
    _OLDEST: Final = 60.0

    def __init__(self) -> None:
        self._rates: deque[tuple[float, float]] = deque(maxlen=self._MOST)

    def observe(self, ahead: int, tokens: int, waited: float, now: float) -> None:
        """A prompt of `tokens` behind `ahead` others has its first token, after `waited`."""
        if ahead > 0 and waited > 0:
            self._rates.append((now, (ahead + tokens) / waited))

    def rate(self, now: float) -> float:
        """Waiting tokens that come to their first token in a second; 0 if that is not known."""
        recent = sorted(rate for at, rate in self._rates if now - at <= self._OLDEST)
        return recent[len(recent) * 3 // 4] if len(recent) >= self.ENOUGH else 0.0

    def predict(self, ahead: int, tokens: int, now: float) -> float:
        """Seconds to the first token of a prompt behind `ahead` tokens; 0 if that is not known."""
        if ahead <= 0:
            return 0.0
        rate = self.rate(now)
        return (ahead + tokens) / rate if rate > 0 else 0.0


_TEXT: Final = "text_input"
_IDS: Final = "input_ids"
_LENGTH: Final = 4
"""Bytes of the length in front of a text, and those of a token id."""


def prompt_bytes(request: InferenceRequest) -> int:
    """Bytes of the text of the prompt; 0 where it comes as token ids.

    Of an exchange over HTTP, those of its body.
    """
    if request.exchange is not None:
        return len(request.exchange.body)
    text = request.inputs.get(_TEXT)
    if text is None or text.datatype is not DataType.BYTES:
        return 0
    return max(text.nbytes - _LENGTH, 0)


def prompt_ids(request: InferenceRequest) -> int:
    """Number of token ids that the prompt comes as."""
    ids = request.inputs.get(_IDS)
    return 0 if ids is None else ids.nbytes // _LENGTH


class TokenRatio:
    """The tokens for each byte of a model's prompts: a moving ratio that begins at 1 / 4."""

    _KEPT: Final = 0.95
    """Share of the former observations that stays with each new one: about 20 requests."""

    def __init__(self) -> None:
        self._bytes = 4096.0
        self._tokens = 1024.0

    def observe(self, size: int, tokens: int) -> None:
        """The engine has counted so many tokens in a text of `size` bytes."""
        if size > 0 < tokens:
            self._bytes = self._bytes * self._KEPT + size
            self._tokens = self._tokens * self._KEPT + tokens

    def estimate(self, size: int) -> int:
        """Tokens that a text of `size` bytes probably has; at least 1."""
        return max(1, ceil(size * self._tokens / self._bytes))
