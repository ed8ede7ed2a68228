"""A summary of a trace file, from the keys that the tool of Triton's tests reads (T-22).

As there, objects are grouped by `id`; a request counts that has both ends; of a name that comes
twice the last time counts; and spans are the time between two names. Other names are passed over.
What the tool does not read is an error here as well: an endpoint that has its first and last name
without those between, and an end before its start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_SPANS = {
    "http": ("HTTP_RECV_START", "HTTP_SEND_END"),
    "http_receive": ("HTTP_RECV_START", "HTTP_RECV_END"),
    "http_send": ("HTTP_SEND_START", "HTTP_SEND_END"),
    "grpc": ("GRPC_WAITREAD_START", "GRPC_SEND_END"),
    "grpc_read": ("GRPC_WAITREAD_START", "GRPC_WAITREAD_END"),
    "grpc_send": ("GRPC_SEND_START", "GRPC_SEND_END"),
    "handler": ("REQUEST_START", "REQUEST_END"),
    "queue": ("QUEUE_START", "COMPUTE_START"),
    "compute_input": ("COMPUTE_START", "COMPUTE_INPUT_END"),
    "compute_infer": ("COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START"),
    "compute_output": ("COMPUTE_OUTPUT_START", "COMPUTE_END"),
}


_WHOLE = {
    "http": {"http_receive", "http_send"},
    "grpc": {"grpc_read", "grpc_send"},
    "handler": set(),
}
"""Spans of a whole request, with those that it must have inside."""


@dataclass
class ModelSummary:
    """Requests of one model version, their times in ns, and the models that they called."""

    name: str
    requests: int = 0
    times: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_SPANS, 0))
    children: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> int:
        try:
            return self.times[name]
        except KeyError:
            raise AttributeError(name) from None

    def averages(self) -> dict[str, float]:
        """The microseconds of a request that the tool prints, and what is left of it outside."""
        inside = self.queue + self.compute_input + self.compute_infer + self.compute_output
        outside = {"overhead": self.handler - inside}
        return {name: ns / self.requests / 1000 for name, ns in (self.times | outside).items()}


def summary(objects: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], ModelSummary]:
    """The summaries by model and version."""
    traces: dict[int, dict[str, Any]] = {}
    for each in sorted(objects, key=lambda each: each["id"]):
        trace = traces.setdefault(each["id"], {"times": {}})
        trace["times"] |= {stamp["name"]: stamp["ns"] for stamp in each.get("timestamps", [])}
        trace |= {key: value for key, value in each.items() if key != "timestamps"}
    found: dict[tuple[str, int], ModelSummary] = {}
    for trace in traces.values():
        times = trace["times"]
        if not {"REQUEST_START", "REQUEST_END"} <= times.keys():
            continue
        key = trace["model_name"], trace["model_version"]
        one = found.setdefault(key, ModelSummary(trace["model_name"]))
        one.requests += 1
        spans = _spans(times)
        for span, ns in spans.items():
            one.times[span] += ns
        for whole in _WHOLE.keys() & spans.keys():
            assert _WHOLE[whole] <= spans.keys(), trace
        if "parent_id" in trace:
            parent = traces[trace["parent_id"]]
            found[parent["model_name"], parent["model_version"]].children.append(one.name)
    return found


def _spans(times: Mapping[str, int]) -> dict[str, int]:
    """The spans whose both ends are known."""
    spans = {
        span: times[end] - times[start]
        for span, (start, end) in _SPANS.items()
        if start in times and end in times
    }
    assert all(ns >= 0 for ns in spans.values()), times
    return spans
