"""Predictions, shares and guesses of a language model's queue, as numbers."""

from __future__ import annotations

import pytest

from penstock.core.errors import DeadlineExceededError, ExhaustedError
from penstock.core.request import Sender
from penstock.scheduling.tokens.fair_share import FairRequest, FairShare, Tenant
from penstock.scheduling.tokens.limits import QueueLimits, Refusal
from penstock.scheduling.tokens.tenants import FairnessPolicy, TenantPolicy
from penstock.scheduling.tokens.token_queue import FirstTokenPrediction, TokenQueue

# -- the prediction -------------------------------------------------------------------------------


def predicting(count: int, now: float = 0.0) -> FirstTokenPrediction:
    """Observations of 1, 2, ... `count` tokens a second."""
    prediction = FirstTokenPrediction()
    for rate in range(1, count + 1):
        prediction.observe(1, rate * 2 - 1, 2.0, now)
    return prediction


@pytest.mark.parametrize(("count", "rate"), [(15, 0.0), (16, 13.0), (64, 49.0), (80, 65.0)])
def test_a_rate_is_that_which_three_quarters_do_not_reach(count: int, rate: float) -> None:
    """Of the last 64: of 80, those from 17 on."""
    assert predicting(count).rate(0.0) == rate


def test_observations_count_for_a_minute() -> None:
    prediction = predicting(16)
    assert [prediction.rate(now) for now in (60.0, 60.1)] == [13.0, 0.0]


def test_who_finds_nobody_waiting_is_neither_observed_nor_predicted() -> None:
    prediction = FirstTokenPrediction()
    for _ in range(20):
        prediction.observe(0, 10, 1.0, 0.0)
        prediction.observe(10, 10, 0.0, 0.0)
    assert prediction.rate(0.0) == 0.0
    assert predicting(16).predict(0, 26, 0.0) == 0.0
    assert predicting(16).predict(13, 13, 0.0) == 2.0
    assert predicting(15).predict(13, 13, 0.0) == 0.0


# -- the queue ------------------------------------------------------------------------------------


def observed(limits: QueueLimits | None = None) -> TokenQueue:
    """A queue that has seen 16 prompts of 10 tokens behind 10 others, a second each."""
    queue = TokenQueue("m", limits or QueueLimits(), None)
    for _ in range(16):
        first = queue.admit(None, 0, 10, 0.0, None)
        second = queue.admit(None, 0, 10, 0.0, None)
        queue.counted(first, 10, 0, 1, 0.0)
        queue.counted(second, 10, 0, 1, 1.0)
        queue.ended(first, complete=True)
        queue.ended(second, complete=True)
    return queue


def test_a_first_token_may_come_exactly_at_the_deadline() -> None:
    queue = observed()
    queue.admit(None, 0, 30, 1.0, None)  # at 20 tokens a second
    assert queue.admit(None, 0, 10, 1.0, 2.0).ahead == 30
    with pytest.raises(DeadlineExceededError) as refused:
        queue.admit(None, 0, 10, 1.0, 2.4)
    assert refused.value.message == (
        "the first token of 'm' is predicted in 2.5 s, and the deadline is in 2.4 s"
    )
    with pytest.raises(DeadlineExceededError, match=r"and the deadline is in 0 s$"):
        queue.admit(None, 0, 10, 1.0, -5.0)
    assert queue.rejected == {Refusal.DEADLINE: 2}


@pytest.mark.parametrize(("waiting", "seconds"), [(1, 1), (20, 1), (21, 2), (1200, 60), (9999, 60)])
def test_a_client_is_told_when_the_queue_will_be_shorter(waiting: int, seconds: int) -> None:
    queue = observed(QueueLimits(requests=2))
    queue.admit(None, 0, waiting, 1.0, None)
    queue.admit(None, 0, 0, 1.0, None)  # at least a token
    queue.waiting_tokens = waiting
    with pytest.raises(ExhaustedError) as refused:
        queue.admit(None, 0, 5, 1.0, None)
    assert refused.value.retry_after == seconds


@pytest.mark.parametrize(("tokens", "given"), [(8192, 4), (2048, 4), (2047, 5), (100, 82)])
def test_with_tenants_the_engine_has_four_that_wait_or_as_many_tokens(
    tokens: int, given: int
) -> None:
    queue = TokenQueue("m", QueueLimits(), FairnessPolicy())
    for _ in range(100):
        queue.admit(Sender("t"), 0, tokens, 0.0, None)
    count = 0
    while queue.next(1000) is not None:
        count += 1
    assert count == given


# -- the share ------------------------------------------------------------------------------------


def request(share: FairShare, tenant: str, tokens: int = 10, band: int = 0) -> FairRequest:
    made = FairRequest(share.tenant(tenant), band, tokens, 0, 0.0)
    share.push(made)
    return made


def taken(share: FairShare) -> FairRequest:
    found = share.pop(0, 0)
    assert found is not None
    return found


def test_a_request_costs_its_prompt_and_a_guess_of_its_output_in_advance() -> None:
    share = FairShare(FairnessPolicy({"a": TenantPolicy(weight=2.0)}, prompt_weight=3.0))
    request(share, "a")
    one = taken(share)
    tenant = share.tenant("a")
    assert tenant.counter == (10 * 3 + 64 * 2) / 2
    one.cached, one.generated, one.started = 4, 100, True
    share.progressed(one)
    assert tenant.counter == (6 * 3 + 100 * 2) / 2
    one.generated = 30
    share.progressed(one)
    assert tenant.counter == (6 * 3 + 64 * 2) / 2
    share.ended(one, complete=True)
    assert tenant.counter == (6 * 3 + 30 * 2) / 2
    assert tenant.guess == pytest.approx(64 * 0.9 + 30 * 0.1)
    assert (tenant.running, tenant.active) == (0, False)


def test_a_request_that_never_started_costs_nothing() -> None:
    share = FairShare(FairnessPolicy({"a": TenantPolicy(weight=2.0)}))
    request(share, "a")
    one = taken(share)
    share.ended(one, complete=False)
    tenant = share.tenant("a")
    assert (tenant.counter, tenant.guess) == (0.0, 64.0)


def test_a_tenant_that_was_away_has_no_credit_beyond_its_burst() -> None:
    policy = FairnessPolicy({"burst": TenantPolicy(weight=2.0, burst=50.0)})
    share = FairShare(policy)
    for name in ("late", "burst"):
        share.tenant(name)
    for _ in range(2):
        request(share, "busy")
    taken(share)  # costs 10 + 128
    assert share.tenant("busy").counter == 138.0
    request(share, "late")
    request(share, "burst")
    assert (share.tenant("late").counter, share.tenant("burst").counter) == (138.0, 113.0)
    assert taken(share).tenant.name == "burst"


def test_a_lower_band_has_one_turn_after_fifteen() -> None:
    share = FairShare(FairnessPolicy())
    for _ in range(40):
        request(share, "high", band=1)
    for _ in range(3):
        request(share, "low", band=0)
    order = [taken(share).band for _ in range(34)]
    assert [n for n, band in enumerate(order) if band == 0] == [15, 31]
    assert share.queued == 9


def test_a_hundred_tenants_have_labels_and_others_share_one() -> None:
    share = FairShare(FairnessPolicy({"known": TenantPolicy()}))
    labels = [share.tenant(f"t{n}").label for n in range(100)]
    assert labels[:99] == [f"t{n}" for n in range(99)]
    assert labels[99] == "other"
    assert share.tenant("known").label == "known"
    assert share.tenant('q"u\\o{t},e=\n').label == "other"
    assert FairShare(FairnessPolicy()).tenant('q"u\\o{t},e=\n').label == "q_u_o_t__e__"


def test_counters_of_a_thousand_idle_tenants_are_kept() -> None:
    share = FairShare(FairnessPolicy())
    first = share.tenant("0")
    for n in range(1, 2048):
        share.tenant(str(n))
    assert share.tenant("0") is first  # which is the last that was asked for now
    busy: Tenant = request(share, "1").tenant
    share.tenant("2048")
    assert share.tenant("1") is busy
    assert share.tenant("0") is first
    assert share.tenant("2").counter == 0.0
    assert len(share._tenants) <= 2 * 1024


def test_a_tenant_that_was_never_seen_has_no_burst_yet() -> None:
    share = FairShare(FairnessPolicy({"burst": TenantPolicy(weight=2.0, burst=50.0)}))
    for _ in range(2):
        request(share, "busy")
    taken(share)
    assert request(share, "burst").tenant.counter == 138.0
