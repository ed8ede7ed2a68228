"""Retries to the second, and errors by the numbers of their status."""

from __future__ import annotations

import pytest

from penstock_client.client import errors
from penstock_client.client.errors import (
    ClientError,
    ConnectionLostError,
    InvalidArgumentError,
    NoServerError,
    ResourceExhaustedError,
    UnavailableError,
)
from penstock_client.client.policy import CallPolicy

REFUSED = UnavailableError("no")


def delays(
    policy: CallPolicy, error: ClientError = REFUSED, chance: float = 1.0
) -> list[float | None]:
    return [policy.delay(attempt, error, lambda: chance) for attempt in range(1, 7)]


def test_by_default_nothing_is_tried_again() -> None:
    assert delays(CallPolicy()) == [None] * 6
    assert CallPolicy().hedge_after is None


def test_waits_double_up_to_the_longest() -> None:
    policy = CallPolicy(attempts=6)
    assert delays(policy)[:5] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6])
    assert delays(policy, chance=0.0)[:2] == pytest.approx([0.05, 0.1])
    assert policy.delay(6, REFUSED) is None
    longest = CallPolicy(attempts=100, longest_backoff=0.3)
    assert longest.delay(99, REFUSED, lambda: 1.0) == 0.3


def test_a_server_s_wish_is_waited_for_at_least() -> None:
    policy = CallPolicy(attempts=9)
    later = ResourceExhaustedError("full")
    later.retry_after = 3.0
    assert policy.delay(1, later, lambda: 1.0) == 3.0
    later.retry_after = 0.01
    assert policy.delay(1, later, lambda: 1.0) == pytest.approx(0.1)
    later.retry_after = None
    assert policy.delay(1, later, lambda: 1.0) == pytest.approx(0.1)


def test_what_may_have_been_done_is_tried_again_only_where_that_is_wanted() -> None:
    lost, wrong, nobody = ConnectionLostError("x"), InvalidArgumentError("x"), NoServerError("x")
    for after_loss in (False, True):
        policy = CallPolicy(attempts=2, after_loss=after_loss)
        tried = [policy.delay(1, each) is not None for each in (lost, wrong, nobody)]
        assert tried == [after_loss, False, True]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"attempts": 0}, "attempts must be at least 1"),
        ({"backoff": -0.1}, "backoff must be between 0 and longest_backoff"),
        ({"backoff": 5.1}, "backoff must be between 0 and longest_backoff"),
        ({"hedge_after": -0.1}, "hedge_after must not be negative"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(given: dict[str, float], problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}$"):
        CallPolicy(**given)  # type: ignore[arg-type]
    CallPolicy(attempts=1, backoff=0.0, longest_backoff=0.0, hedge_after=0.0)


CODES = {
    "CancelledError": 1,
    "UnknownError": 2,
    "InvalidArgumentError": 3,
    "DeadlineExceededError": 4,
    "NotFoundError": 5,
    "AlreadyExistsError": 6,
    "PermissionDeniedError": 7,
    "ResourceExhaustedError": 8,
    "FailedPreconditionError": 9,
    "AbortedError": 10,
    "OutOfRangeError": 11,
    "UnimplementedError": 12,
    "InternalError": 13,
    "UnavailableError": 14,
    "NoServerError": 14,
    "ConnectionLostError": 14,
    "DataLossError": 15,
    "UnauthenticatedError": 16,
}


@pytest.mark.parametrize(("name", "code"), CODES.items())
def test_an_error_has_the_number_of_grpc_s_status(name: str, code: int) -> None:
    made = getattr(errors, name)("why", "a:1")
    assert (made.code, made.message, made.address) == (code, "why", "a:1")
