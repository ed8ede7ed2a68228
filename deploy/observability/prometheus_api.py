"""Questions to Prometheus over its HTTP API."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


class QueryError(Exception):
    """Prometheus refuses a query; the message is its own, with the expression."""


@dataclass(frozen=True, slots=True)
class Line:
    """A series: its labels, and values by time in seconds."""

    labels: Mapping[str, str]
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class PrometheusApi:
    """A Prometheus server; `url` has no slash at its end."""

    url: str

    def now(self, expression: str) -> list[Line]:
        """The value of each series now."""
        found = self._ask("query", query=expression)
        if found["resultType"] == "scalar":
            return [Line({}, [_point(found["result"])])]
        return [Line(one["metric"], [_point(one["value"])]) for one in found["result"]]

    def over_time(self, expression: str, start: float, end: float, step: float) -> list[Line]:
        """The values of each series from start to end, in seconds since 1970."""
        found = self._ask(
            "query_range", query=expression, start=str(start), end=str(end), step=str(step)
        )
        return [
            Line(one["metric"], [_point(value) for value in one["values"]])
            for one in found["result"]
        ]

    def rules(self) -> list[dict[str, Any]]:
        """The rules of all groups, with their expressions and states."""
        return [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]

    def exemplars(self, selector: str, seconds: float = 600.0) -> list[dict[str, Any]]:
        """The exemplars of series in the last seconds, by series."""
        now = time.time()
        found: list[dict[str, Any]] = self._ask(
            "query_exemplars", query=selector, start=str(now - seconds), end=str(now)
        )
        return found

    def healthy_targets(self) -> int:
        """The number of targets that answered the last scrape."""
        return sum(target["health"] == "up" for target in self._ask("targets")["activeTargets"])

    def _ask(self, what: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{what}?{query}", timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            reason = json.load(error).get("error", error.reason)
            raise QueryError(f"{reason}: {parameters.get('query', what)}") from error


def _point(value: Sequence[Any]) -> tuple[float, float]:
    return float(value[0]), float(value[1])
