"""What becomes of the other requests of a command when one fails."""

from __future__ import annotations

import pytest

from harness.outcomes import raises_nothing
from penstock_client.client import ClientError, InternalError, InvalidArgumentError, NoServerError
from penstock_client.commands.failures import Failures


def _told(failures: Failures) -> ClientError:
    with pytest.raises(ClientError) as raised:
        failures.raise_told()
    return raised.value


def test_without_a_failure_nothing_is_raised() -> None:
    failures = Failures("texts")
    assert list(failures.sent("ab")) == ["a", "b"]
    with raises_nothing():
        failures.raise_told()


def test_failures_of_some_leave_the_others_and_the_first_decides() -> None:
    failures = Failures("texts")
    seen = []
    for number, item in enumerate(failures.sent("abc")):
        seen.append(item)
        failures.add(InternalError(f"reason {number}"))
    told = _told(failures)
    assert seen == ["a", "b", "c"]
    assert isinstance(told, InternalError)
    assert told.message == "3 of 3 texts failed; the first: reason 0"


def test_after_a_server_that_is_gone_nothing_is_sent_and_that_decides() -> None:
    failures = Failures("texts")
    texts = failures.sent("abcd")
    assert next(texts) == "a"
    failures.add(InternalError("a bad text"))
    assert next(texts) == "b"
    failures.add(NoServerError("it is gone"))
    assert list(texts) == []
    told = _told(failures)
    assert isinstance(told, NoServerError)
    assert told.message == "2 of 2 texts failed, and the rest was not sent; the reason: it is gone"


def test_a_failure_of_the_only_one_is_told_as_it_is() -> None:
    failures = Failures("texts")
    assert list(failures.sent("a")) == ["a"]
    failures.add(InvalidArgumentError("it takes no texts"))
    assert _told(failures).message == "it takes no texts"
