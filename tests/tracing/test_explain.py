"""Explanations of requests, by finished and unfinished traces."""

from __future__ import annotations

import json

from penstock.core.timeline import MOST_TIMELINES
from penstock.tracing.explain import MOST_BYTES, explanation
from tracing.traces import model_request, open_trace


def test_requests_beyond_either_limit_are_counted() -> None:
    """Those that were never recorded, and those that have no room in the text."""
    trace = open_trace()
    for _ in range(MOST_TIMELINES + 4):
        model_request(trace.root, "m")
    text = explanation(trace.root, None)
    told = json.loads(text)
    assert len(text) <= MOST_BYTES
    assert told["requests_left_out"] + len(told["requests"]) == MOST_TIMELINES + 4
