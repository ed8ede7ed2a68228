"""Traces as Jaeger's query API answers them."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Span:
    """One span; times are in microseconds, the beginning since the epoch."""

    id: str
    parent: str
    name: str
    service: str
    begin: int
    duration: int
    tags: dict[str, Any]
    events: list[tuple[str, int]]
    links: list[tuple[str, str]] = field(default_factory=list)

    @property
    def end(self) -> int:
        return self.begin + self.duration


def read_trace(jaeger: str, trace_id: str) -> list[Span]:
    """The spans of a trace, by their beginnings; none if Jaeger does not know it."""
    try:
        with urllib.request.urlopen(f"{jaeger}/api/traces/{trace_id}", timeout=10) as reply:
            (found,) = json.load(reply)["data"]
    except urllib.error.HTTPError as error:
        error.close()
        return []
    services = {key: process["serviceName"] for key, process in found["processes"].items()}
    spans = [_span(one, services) for one in found["spans"]]
    return sorted(spans, key=lambda span: (span.begin, -span.duration))


def wait_for_trace(jaeger: str, trace_id: str, names: set[str], timeout: float) -> list[Span]:
    """The trace once it has spans of all these names, or what there is of it after `timeout`."""
    end = time.monotonic() + timeout
    while True:
        spans = read_trace(jaeger, trace_id)
        if (spans and names <= {span.name for span in spans}) or time.monotonic() > end:
            return spans
        time.sleep(0.2)


def _span(one: dict[str, Any], services: dict[str, str]) -> Span:
    parents = [r["spanID"] for r in one["references"] if r["refType"] == "CHILD_OF"]
    others = [r for r in one["references"] if r["refType"] != "CHILD_OF"]
    return Span(
        one["spanID"],
        parents[0] if parents else "",
        one["operationName"],
        services[one["processID"]],
        one["startTime"],
        one["duration"],
        {tag["key"]: tag["value"] for tag in one["tags"]},
        [(_event_name(log), log["timestamp"]) for log in one["logs"]],
        [(r["traceID"], r["spanID"]) for r in others],
    )


def _event_name(log: dict[str, Any]) -> str:
    fields = {each["key"]: each["value"] for each in log["fields"]}
    return str(fields.get("event", ""))
