"""The queries of dashboards to Prometheus: their expressions, with the variables filled in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DASHBOARDS = Path(__file__).parent / "grafana" / "dashboards"
_ALL = ".*"


@dataclass(frozen=True, slots=True)
class Question:
    """One expression of a panel."""

    dashboard: str
    panel: str
    legend: str
    expression: str


def questions(dashboard: Path, interval: str) -> Iterator[Question]:
    """The expressions of a dashboard for all servers and models.

    `interval` takes the place of Grafana's `$__rate_interval`.
    """
    board = json.loads(dashboard.read_text("utf-8"))
    for panel in panels(board):
        for target in panel["targets"]:
            expression = filled(target["expr"], interval)
            yield Question(board["title"], panel["title"], target["legendFormat"], expression)


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels of a dashboard that show something, rows left out."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def filled(expression: str, interval: str, models: str = _ALL, servers: str = _ALL) -> str:
    """The expression as Grafana sends it with these models and servers chosen, which are regular
    expressions; all if none are named.
    """
    for variable, value in (
        ("$__rate_interval", interval),
        ("$instance", servers),
        ("$model", models),
    ):
        expression = expression.replace(variable, value)
    return expression
