"""Limits, predictions and estimates of what waits for a language model."""

from __future__ import annotations

import pytest

from penstock.core.errors import DeadlineExceededError, ExhaustedError
from penstock.core.request import Sender
from penstock.scheduling.tokens.limits import QueueLimits, Refusal
from penstock.scheduling.tokens.tenants import FairnessPolicy
from penstock.scheduling.tokens.token_queue import FirstTokenPrediction, TokenQueue


def _queue(requests: int = 0, tokens: int = 0, policy: FairnessPolicy | None = None) -> TokenQueue:
    return TokenQueue("m", QueueLimits(requests, tokens), policy)


def test_full_queue_says_what_waits() -> None:
    queue = _queue(requests=2)
    for _ in range(2):
        queue.admit(None, 400, 0, 0.0, None)
    with pytest.raises(ExhaustedError) as refused:
        queue.admit(None, 400, 0, 0.0, None)
    assert refused.value.message == "the queue of 'm' is full: 2 requests, 200 tokens wait"
    assert refused.value.retry_after == 1
    assert queue.rejected == {Refusal.REQUESTS: 1}


def test_tokens_are_limited_but_for_a_prompt_that_comes_alone() -> None:
    queue = _queue(tokens=150)
    queue.admit(None, 4000, 0, 0.0, None)
    with pytest.raises(ExhaustedError, match=r"1000 tokens wait, and this prompt has about 1$"):
        queue.admit(None, 4, 0, 0.0, None)
    assert queue.rejected == {Refusal.TOKENS: 1}


@pytest.mark.parametrize("started", [False, True])
def test_request_that_ends_frees_its_place(started: bool) -> None:
    queue = _queue(requests=1)
    request = queue.admit(None, 400, 0, 0.0, None)
    if started:
        assert queue.counted(request, 90, 0, 1, 1.0)
    queue.ended(request, complete=started)
    assert (queue.waiting_requests, queue.waiting_tokens, queue.running) == (0, 0, 0)
    assert queue.admit(None, 400, 0, 2.0, None).tokens in range(90, 101)


def test_first_token_ends_the_waiting() -> None:
    queue = _queue(requests=1)
    request = queue.admit(None, 400, 0, 0.0, None)
    queue.counted(request, 120, 0, 1, 1.0)
    assert (queue.waiting_requests, queue.running) == (0, 1)
    assert not queue.counted(request, 120, 0, 17, 2.0)


@pytest.mark.parametrize("started", [False, True])
def test_tokens_of_a_cancelled_request_are_counted_when_they_become_known(started: bool) -> None:
    """And cost its tenant the same, whether its first token was known before."""
    queue = _queue(policy=FairnessPolicy())
    request = queue.admit(Sender("a", 0), 400, 0, 0.0, None)
    assert queue.next(1) is request
    if started:
        queue.counted(request, 90, 0, 1, 1.0)
    queue.ended(request, complete=False)
    assert not queue.counted(request, 90, 30, 5, 2.0)
    usage, tenant = request.tenant.usage, request.tenant
    assert (usage.prompt_tokens, usage.cached_tokens, usage.generated_tokens) == (90, 30, 5)
    assert tenant.counter == 60 + 2 * 5
    assert (queue.waiting_requests, queue.waiting_tokens, queue.running) == (0, 0, 0)


def test_estimates_follow_what_the_engine_counts() -> None:
    queue = _queue(requests=9)
    for _ in range(200):
        request = queue.admit(None, 1000, 0, 0.0, None)
        queue.counted(request, 500, 0, 1, 1.0)
        queue.ended(request, complete=True)
    assert queue.admit(None, 1000, 0, 0.0, None).tokens == pytest.approx(500, rel=0.02)


def test_token_ids_are_counted_and_teach_nothing_about_text() -> None:
    queue = _queue(requests=9)
    request = queue.admit(None, 0, 321, 0.0, None)
    queue.counted(request, 321, 0, 1, 1.0)
    assert request.tokens == 321
    assert queue.admit(None, 400, 0, 0.0, None).tokens == 100


def _learn(queue: TokenQueue, count: int) -> float:
    """Requests of 100 tokens that wait in pairs, each two seconds; returns the time after it."""
    for at in range(count):
        pair = [queue.admit(None, 400, 0, 3.0 * at, None) for _ in range(2)]
        for request in pair:
            queue.counted(request, 100, 0, 1, 3.0 * at + 2.0)
            queue.ended(request, complete=True)
    return 3.0 * count


def test_deadline_that_the_first_token_would_miss_is_refused_at_once() -> None:
    queue = _queue(requests=9)
    now = _learn(queue, FirstTokenPrediction.ENOUGH)
    queue.admit(None, 400, 0, now, None)
    with pytest.raises(DeadlineExceededError) as refused:
        queue.admit(None, 400, 0, now, 1.5)
    assert refused.value.message == (
        "the first token of 'm' is predicted in 2 s, and the deadline is in 1.5 s"
    )
    assert queue.rejected == {Refusal.DEADLINE: 1}
    assert queue.waiting_requests == 1


@pytest.mark.parametrize(("learned", "ahead"), [(3, 1), (FirstTokenPrediction.ENOUGH, 0)])
def test_nothing_is_predicted_from_little_or_behind_nobody(learned: int, ahead: int) -> None:
    queue = _queue(requests=9)
    now = _learn(queue, learned)
    for _ in range(ahead):
        queue.admit(None, 400, 0, now, None)
    assert queue.admit(None, 400, 0, now, 0.001).ahead == 100 * ahead


def test_old_observations_predict_nothing() -> None:
    queue = _queue(requests=9)
    now = _learn(queue, FirstTokenPrediction.ENOUGH) + 3600
    queue.admit(None, 400, 0, now, None)
    assert queue.admit(None, 400, 0, now, 0.001).ahead == 100


def test_engine_of_unknown_capacity_has_few_requests_that_wait_there() -> None:
    queue = _queue(policy=FairnessPolicy())
    for _ in range(9):
        queue.admit(Sender("one"), 400, 0, 0.0, None)
    taken = [request for _ in range(9) if (request := queue.next(0)) is not None]
    assert len(taken) == 4
    queue.counted(taken[0], 100, 0, 1, 1.0)
    assert queue.next(0) is not None
    assert queue.next(0) is None
