"""Fields of log lines, the detail of the log, and what follows it."""

from __future__ import annotations

import logging

from penstock.core.errors import InternalError
from penstock.core.log.log_fields import (
    error_fields,
    fields_of,
    name_request,
    request_fields,
    trace_fields,
)
from penstock.core.log.log_throttle import LogThrottle
from penstock.core.log.verbosity import Verbosity
from penstock.core.request import InferenceRequest, RequestScope
from penstock.core.timeline import Trace


def test_a_request_has_the_fields_that_are_known() -> None:
    assert request_fields(InferenceRequest("m")) == {"model": "m"}
    asked = InferenceRequest("m", "2", id="r" * 2000)
    shown = "r" * 1024 + "... (2000 characters)"
    assert request_fields(asked) == {"model": "m", "version": "2", "request_id": shown}
    assert request_fields(asked, "3")["version"] == "3"


def test_a_traced_request_has_the_ids_of_its_trace() -> None:
    timeline = Trace(0).root
    asked = InferenceRequest("m", scope=RequestScope(timeline=timeline))
    ids = {"trace_id": timeline.trace.text_id, "span_id": f"{timeline.span_id:016x}"}
    assert trace_fields(timeline) == ids
    assert request_fields(asked) == {"model": "m", **ids}


def test_an_unexpected_error_names_the_first_request_that_it_ended() -> None:
    error, known = KeyError(), InternalError("x")
    name_request(error, InferenceRequest("first"))
    name_request(error, InferenceRequest("second"))
    name_request(known, InferenceRequest("first"))
    assert error_fields(error) == {"model": "first"}
    assert error_fields(known) == error_fields(ValueError()) == {}


def test_a_record_has_the_known_fields_in_their_order() -> None:
    record = logging.makeLogRecord({"span_id": "s", "model": 1, "version": "", "other": "x"})
    assert list(fields_of(record).items()) == [("model", "1"), ("span_id", "s")]


def test_who_follows_the_detail_is_told_of_it_until_the_end() -> None:
    verbosity, told = Verbosity(), list[int]()
    with verbosity.followed_by(told.append):
        verbosity.change(2)
    verbosity.change(1)
    assert (told, verbosity.level) == ([0, 2], 1)


def test_a_number_is_logged_once_a_minute() -> None:
    throttle = LogThrottle()
    assert [throttle.add(now) for now in (0.0, 59.5, 60.0, 119.0, 120.0)] == [
        *(True, False, True),
        *(False, True),
    ]
    counted = throttle.count
    throttle.reset()
    assert (counted, throttle.count, throttle.add(179.0), throttle.count) == (5, 0, False, 1)
