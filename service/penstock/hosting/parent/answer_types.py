"""Types of what a model process sends, by kinds: nothing else reaches a handler.

In a model process foreign code runs, so its messages are checked as those of strangers. Beside the
types of `link.messages` these bound lengths and signs, so that no handler need.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta
from msgspec.msgpack import Decoder

from penstock.core.request_limits import MOST_TENSORS
from penstock.core.timeline import MOST_MARKS
from penstock.hosting.link.link import MOST_ITEMS, Decode
from penstock.hosting.link.messages import Kind

_Count = Annotated[int, Meta(ge=0)]
_FEW = Meta(max_length=MOST_TENSORS)
_SHAPE = Meta(max_length=64)
"""numpy has as many dimensions."""
_ITEMS = Meta(max_length=max(MOST_ITEMS, 1 << 16))
"""Responses of a batch are one list, however many there are."""

_Where = int | Annotated[tuple[int, ...], Meta(min_length=2, max_length=3)]
_Spec = tuple[str, str, Annotated[tuple[_Count, ...], _SHAPE], _Count, _Where]
_Value = bool | int | float | str
_Parameters = Annotated[dict[str, _Value], _FEW]
_Problem = tuple[str, str]
_Response = tuple[_Count | Annotated[list[_Spec], _FEW], _Parameters, bool, _Problem | None]
_Numbered = tuple[int, _Response]
_Responses = Annotated[list[_Numbered], _ITEMS]

_Request = tuple[
    int,
    str,
    str,
    str,
    Annotated[list[_Spec], _FEW],
    Annotated[tuple[str, ...], _FEW],
    _Parameters,
    int,
    int,
    int | str,
    bool,
    bool,
    float | None,
    tuple[()],  # the server keeps what its clients share
    str,
    int,
    int | None,
]

_Field = Annotated[str, Meta(pattern=r"\A[^\r\n\0]*\Z")]
_Head = tuple[Annotated[int, Meta(ge=200, le=599)], tuple[tuple[_Field, _Field], ...]]
_Part = tuple[int, _Head | None, _Count, bool, _Problem | None]

_Fact = bool | int | float | str | list[str]
_Facts = Annotated[dict[str, _Fact], _FEW]
_Event = tuple[str, int, _Facts]
_TRACE_ID = Meta(pattern=r"\A[0-9a-f]{32}\Z")
_Link = tuple[Annotated[str, _TRACE_ID], _Count]
_Span = tuple[
    str,
    _Count,
    _Count,
    int,
    int,
    _Facts,
    list[_Event],
    str | None,
    Annotated[int, Meta(ge=0, le=4)],
    list[_Link],
]
_Marks = Annotated[list[tuple[str, int]], Meta(max_length=MOST_MARKS)]
_Spans = Annotated[list[_Span], Meta(max_length=MOST_MARKS)]

_MetricName = Annotated[str, Meta(max_length=4096)]
"""With its labels, as `series_name` writes them; the page spells it as Prometheus does."""
_Exemplar = tuple[_Count, Annotated[str, _TRACE_ID], float, float]
_Histogram = tuple[list[float], list[_Count], float, list[_Exemplar]]

_Block = int | Annotated[tuple[int, ...], Meta(min_length=2, max_length=2)]
_Files = dict[str, bytes]
_Control = tuple[_Count, str, tuple[str | bool | _Files, ...]]
_Metric = tuple[_Count, str, tuple[int | float | str | list[float] | dict[str, str] | None, ...]]

_LoggerName = Annotated[str, Meta(max_length=256)]
_Log = tuple[Annotated[int, Meta(ge=0, le=1000)], _LoggerName, str, int, str, dict[str, str]]

_HEADERS: Mapping[int, Any] = {
    Kind.READY: bool,
    Kind.FAILED: _Problem,
    Kind.RESPONSE: _Numbered,
    Kind.RESPONSES: _Responses,
    Kind.END: int,
    Kind.ERROR: tuple[int, str, str],
    Kind.DONE: tuple[int, _Count, _Count, _Count, _Count],
    Kind.EXECUTED: tuple[int, _Count, _Count, _Count, _Count, _Responses],
    Kind.METRICS: dict[_MetricName, float],
    Kind.HISTOGRAMS: dict[_MetricName, _Histogram],
    Kind.UNHEALTHY: str,
    Kind.LOG: _Log,
    Kind.CALL: tuple[bool, bool, _Request],
    Kind.CALL_TAKEN: tuple[int, int],
    Kind.CALL_CANCEL: int,
    Kind.CALL_STOP: int,
    Kind.CONTROL: _Control,
    Kind.METRIC: _Metric,
    Kind.REGION_MAPPED: int,
    Kind.FREE: list[_Block],
    Kind.RESCHEDULE: int,
    Kind.RECORDED: tuple[int, _Marks, _Facts, _Spans],
    Kind.RECORDING: int,
    Kind.COMMANDED: tuple[int, str, _Problem | None],
    Kind.PARTS: Annotated[list[_Part], _ITEMS],
    Kind.USAGE: tuple[int, _Count, _Count, _Count],
}

DECODERS: Mapping[int, Decode] = {kind: Decoder(header).decode for kind, header in _HEADERS.items()}
"""Each raises `ValueError` for a header that is not of its kind's type."""
