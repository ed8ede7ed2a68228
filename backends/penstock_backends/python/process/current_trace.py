"""The traced request that the running code serves; calls of models, and spans, are part of it.

Kept in a context variable, so tasks of asyncio, and threads of `asyncio.to_thread`, inherit it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from penstock.core.timeline import Timeline

if TYPE_CHECKING:
    from penstock_backends.python.process.own_spans import FindTimeline, SendRecorded


class ModelSpans(Protocol):
    """Spans of OpenTelemetry's API: the current one, and those that have not ended."""

    def attach(self, timeline: Timeline) -> Any:
        """Make the span of a request the current one; returns what `detach` takes."""

    def detach(self, token: Any) -> None:
        """Make the span current that was so before."""

    def remain(self, number: int) -> bool:
        """Whether spans of a request have not ended, as those that send its last response.

        Then what is recorded is sent once they have; asked as the last response is sent.
        """


_caller: ContextVar[Timeline | None] = ContextVar("caller", default=None)
_spans: list[ModelSpans] = []


def take_spans(find: FindTimeline, send: SendRecorded) -> None:
    """Take spans of the model's own, and set the current span, from now on.

    To be called once the model is loaded, which may set a provider of spans; that is then left
    alone. There are none where the process's interpreter has no OpenTelemetry.
    """
    try:
        from penstock_backends.python.process import own_spans
    except ImportError:
        _spans.clear()
        return
    _spans[:] = [own_spans.OwnSpans(find, send)]


def spans_remain(number: int) -> bool:
    """Whether the model has begun spans, of the request with this number, that have not ended."""
    return bool(_spans) and _spans[0].remain(number)


def caller() -> Timeline | None:
    """The timeline that a call of another model belongs to, if the model names none."""
    return _caller.get()


class Serving:
    """While entered, the model answers a batch of so many requests, of which these are traced.

    Calls belong to the request only if it is the batch's only one. Spans belong to the first one
    of the batch that may have some.
    """

    __slots__ = ("_alone", "_attached", "_timelines", "_token")

    def __init__(self, timelines: Sequence[Timeline], requests: int) -> None:
        self._timelines = timelines
        self._alone = timelines[0] if requests == 1 else None

    def __enter__(self) -> None:
        self._token = _caller.set(self._alone)
        self._attached: list[tuple[ModelSpans, Any]] = []
        for spans in _spans:
            for timeline in self._timelines:
                if timeline.trace.propagated:
                    self._attached.append((spans, spans.attach(timeline)))
                    break

    def __exit__(self, *_: object) -> None:
        for spans, attached in self._attached:
            spans.detach(attached)
        _caller.reset(self._token)
