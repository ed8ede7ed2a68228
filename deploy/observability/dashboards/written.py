"""The dashboards as Grafana loads them: a JSON file each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.observability.dashboards.encoders import encoders
from deploy.observability.dashboards.gpu import gpu
from deploy.observability.dashboards.llm import llm
from deploy.observability.dashboards.server import server

FOLDER = Path(__file__).parents[1] / "grafana" / "dashboards"


def written() -> Mapping[str, str]:
    """The text of each file, by name."""
    boards = {"server": server, "encoders": encoders, "llm": llm, "gpu": gpu}
    return {f"{name}.json": _json(board().build()) for name, board in boards.items()}


def _json(board: object) -> str:
    return JSONEncoder(indent=2, sort_keys=True, ensure_ascii=False).encode(board) + "\n"
