"""The request that code serves, in a process whose Python may have no OpenTelemetry."""

from __future__ import annotations

import sys

import pytest

from penstock.core.timeline import Trace
from penstock_backends.python import process
from penstock_backends.python.process import current_trace
from penstock_backends.python.process.current_trace import Serving, caller, spans_remain


@pytest.fixture
def without_opentelemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's own environment may lack it."""
    monkeypatch.delattr(process, "own_spans", raising=False)
    monkeypatch.delitem(sys.modules, f"{process.__name__}.own_spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)


@pytest.mark.usefixtures("without_opentelemetry")
def test_requests_are_served_without_opentelemetry() -> None:
    current_trace.take_spans(lambda _, __: None, lambda _: None)
    timeline = Trace(1, propagated=True).root
    with Serving([timeline], 1):
        assert caller() is timeline
    assert caller() is None
    assert not spans_remain(1)


def test_calls_of_several_requests_belong_to_none() -> None:
    timelines = [Trace(1).root, Trace(1).root]
    with Serving(timelines, 2):
        assert caller() is None
    with Serving(timelines[:1], 2):
        assert caller() is None
