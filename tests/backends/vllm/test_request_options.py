"""Options of a request, told from its sampling parameters."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.core.errors import InvalidRequestError
from penstock.core.request import InferenceRequest
from penstock_backends.vllm.inputs.request_options import NO_OPTIONS, RequestOptions, read_options


def read(
    parameters: Any = None, given: Any = None, *, priority: int = 0, by_priority: bool = True
) -> tuple[RequestOptions, dict[str, Any]]:
    request = InferenceRequest("m", parameters=given or {}, priority=priority)
    return read_options(request, parameters or {}, by_priority=by_priority)


def test_most_requests_have_none() -> None:
    assert read({"n": 1}) == (NO_OPTIONS, {"n": 1})


def test_options_are_taken_out_of_the_sampling_parameters() -> None:
    options, left = read({"priority": "-3", "cache_salt": "a", "session_id": "b", "n": 1})
    assert left == {"n": 1}
    assert options == RequestOptions(priority=-3, cache_salt="a", session_id="b")


def test_parameters_of_the_request_are_options_too_and_come_second() -> None:
    options, left = read({"cache_salt": "a"}, {"cache_salt": "b", "session_id": "c", "x": 1})
    assert (options.cache_salt, options.session_id, left) == ("a", "c", {})


def test_the_callers_span_is_passed_on() -> None:
    options, _ = read(given={"traceparent": "00-a-b-01", "tracestate": "v=1"})
    assert options.trace == {"traceparent": "00-a-b-01", "tracestate": "v=1"}


def test_a_state_without_a_span_is_nothing() -> None:
    assert read(given={"tracestate": "v=1"})[0].trace is None


def test_a_priority_that_the_scheduler_would_leave_aside_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match='needs "scheduling_policy": "priority"'):
        read({"priority": 1}, by_priority=False)


def test_the_requests_own_priority_is_a_hint() -> None:
    assert read(priority=2, by_priority=False)[0].priority == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("priority", 1 << 40),
        ("priority", "first"),
        ("cache_salt", ""),
        ("cache_salt", 1),
        ("session_id", "x" * 513),
        ("traceparent", "\ud800"),
    ],
)
def test_other_values_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequestError, match=f"sampling parameter '{name}'"):
        read({name: value})
