"""`TracedResponses`: what the timeline of a traced request has of its responses."""

from __future__ import annotations

from fakes import make_response
from penstock.core.timeline import Trace
from penstock.inflight.inference import FIRST_RESPONSE, TracedResponses


def test_only_the_first_response_is_marked_and_all_are_counted() -> None:
    timeline = Trace(1).root.nest("m", "1", "", 1)
    responses = TracedResponses(timeline, None)
    responses(make_response(1))
    marks = list(timeline.marks)
    responses(make_response(2))
    responses(make_response(3))
    assert [name for name, _ in marks] == [FIRST_RESPONSE]
    assert timeline.marks == marks
    assert timeline.facts["responses"] == 3
