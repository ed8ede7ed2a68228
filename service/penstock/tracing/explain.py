"""The explanation of one request, which its client asks for: where its time went, as JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from penstock.core.errors import InferenceError
from penstock.core.timeline import WAITED_FOR_LOAD, Timeline

EXPLAIN = "penstock-explain"
"""Metadata key and HTTP header: `1` in a request asks for the explanation, which the answer has.

In a stream of server-sent events, the explanation is the last event, of this type.
"""

MOST_BYTES = 6 << 10
"""Bytes of one explanation; gRPC clients refuse more than 8 KiB of metadata in all."""

Sees = Callable[[str], bool]
"""Whether the client may know of the model of this name."""

_MARKS = {
    "COMPUTE_START": "compute_start_us",
    "FIRST_RESPONSE": "first_response_us",
    "ENGINE_QUEUED": "engine_queued_us",
    "PREFILL_START": "prefill_start_us",
    "FIRST_TOKEN": "first_token_us",
    "DECODE_END": "decode_end_us",
}
_DURATIONS = {
    "queue_us": ("QUEUE_START", "COMPUTE_START"),
    "compute_input_us": ("COMPUTE_START", "COMPUTE_INPUT_END"),
    "compute_infer_us": ("COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START"),
    "compute_output_us": ("COMPUTE_OUTPUT_START", "COMPUTE_END"),
    "cache_lookup_us": ("CACHE_LOOKUP_START", "CACHE_LOOKUP_END"),
}


def explanation(root: Timeline, error: InferenceError | None, sees: Sees | None = None) -> str:
    """The explanation as one line of ASCII, of at most `MOST_BYTES`.

    Of what is called for the client, models that it does not see have times alone. Times are in
    microseconds; those named `..._us` of an event count from the time when the request began to
    come in. The endpoint's part is `root`, whose answer is sent next.
    """
    told = explain(root, error, sees)
    requests: list[Any] = told["requests"]
    kept, dropped = len(requests), root.trace.dropped
    while len(text := json.dumps(told, separators=(",", ":"))) > MOST_BYTES and kept:
        kept //= 2
        told["requests"] = requests[:kept]
        told["requests_left_out"] = dropped + len(requests) - kept
    return text


def explain(
    root: Timeline, error: InferenceError | None = None, sees: Sees | None = None
) -> dict[str, Any]:
    """The timeline of a client's request, and of the requests made for it, as JSON values."""
    trace = root.trace
    now = root.end or time.monotonic_ns()
    marks = dict(root.marks)
    received = marks.get("GRPC_WAITREAD_END") or marks.get("HTTP_RECV_END") or root.begin
    told: dict[str, Any] = {"trace_id": trace.text_id}
    if root.request_id:
        told["request_id"] = root.request_id[:128]
    told |= {"total_us": _us(now - root.begin), "receive_us": _us(received - root.begin)}
    if (waited := root.facts.get(WAITED_FOR_LOAD)) is not None:
        told[WAITED_FOR_LOAD] = waited
    if (failed := root.error or error) is not None:
        told["error"] = failed.message[:256]
    places = {id(timeline): number for number, timeline in enumerate(trace.timelines)}
    told["requests"] = [
        _explain_request(timeline, root.begin, places.get(id(timeline.parent)), sees)
        for timeline in trace.timelines
    ]
    if trace.dropped:
        told["requests_left_out"] = trace.dropped
    return told


def _explain_request(
    timeline: Timeline, base: int, parent: int | None, sees: Sees | None
) -> dict[str, Any]:
    """One request to a model; `parent` is the place in the list of the one it was made for."""
    hidden = parent is not None and sees is not None and not sees(timeline.model)
    told: dict[str, Any] = {}
    if not hidden:
        told |= {"model": timeline.model, "version": timeline.version}
    if parent is not None:
        told["parent"] = parent
    told["start_us"] = _us(timeline.begin - base)
    if timeline.end:
        told["total_us"] = _us(timeline.end - timeline.begin)
    return told if hidden else told | _execution(timeline, base)


def _execution(timeline: Timeline, base: int) -> dict[str, Any]:
    """What became of a request at its model."""
    marks: dict[str, int] = {}
    for activity, at in timeline.marks:
        marks.setdefault(activity, at)
    told: dict[str, Any] = {}
    for name, (start, end) in _DURATIONS.items():
        if start in marks and end in marks:
            told[name] = _us(max(marks[end] - marks[start], 0))
    told |= {
        name: _us(marks[activity] - base) for activity, name in _MARKS.items() if activity in marks
    }
    if (batch := timeline.batch) is not None:
        told["instance"] = batch.instance
        told["batch"] = {"requests": batch.requests, "rows": batch.rows}
    told |= _plain(timeline.facts)
    if timeline.error is not None:
        told["error"] = timeline.error.message[:256]
    return told


def _plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts, of which long texts are cut."""
    return {name: value[:256] if isinstance(value, str) else value for name, value in facts.items()}


def _us(ns: int) -> float:
    return round(ns / 1000, 1)
