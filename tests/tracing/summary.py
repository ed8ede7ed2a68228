"""A summary of a trace file, from the keys that the tool of Triton's tests reads (T-22).

As there, objects are grouped by `id`; a request counts that has both ends; of a name that comes
twice the last time counts; and spans are the time between two names. Other names are passed over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_SPANS = {
    "http": ("HTTP_RECV_START", "HTTP_SEND_END"),
    "handler": ("REQUEST_START", "REQUEST_END"),
    "queue": ("QUEUE_START", "COMPUTE_START"),
    "compute_input": ("COMPUTE_START", "COMPUTE_INPUT_END"),
    "compute_infer": ("COMPUTE_INPUT_END", "COMPUTE_OUTPUT_START"),
    "compute_output": ("COMPUTE_OUTPUT_START", "COMPUTE_END"),
}


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
        for span, (start, end) in _SPANS.items():
            if start in times and end in times:
                one.times[span] += times[end] - times[start]
        if "parent_id" in trace:
            parent = traces[trace["parent_id"]]
            found[parent["model_name"], parent["model_version"]].children.append(one.name)
    return found
