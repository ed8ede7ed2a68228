"""Dashboards are what their source says, and what Grafana and Prometheus know."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from deploy.observability.dashboards.written import FOLDER, written
from deploy.observability.questions import DASHBOARDS, panels, questions
from harness import recorded

_FILES = sorted(FOLDER.glob("*.json"))
_NAME = re.compile(r"\b(?:nv|penstock|vllm)[_:][a-z0-9_]+")
_SUFFIX = re.compile(r"_(?:bucket|sum|count)$")
_LATER = {
    "nv_inference_first_response_histogram_ms",
    "nv_model_load_duration_secs",
    "nv_gpu_utilization",
    "nv_gpu_memory_used_bytes",
    "nv_gpu_memory_total_bytes",
    "nv_gpu_power_usage",
    "nv_gpu_power_limit",
    "nv_energy_consumption",
}
"""Names of Triton's that the recorded server has not: it is older, and has no GPU (ME-13, ME-14,
ME-21 to ME-24)."""


def _board(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


@pytest.mark.contract("K-18")
def test_files_are_what_the_source_says() -> None:
    """If not: `python -m deploy.observability.dashboards`."""
    assert {path.name: path.read_text("utf-8") for path in DASHBOARDS.iterdir()} == written()


@pytest.mark.contract("K-18")
@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_grafana_knows_every_field(path: Path) -> None:
    """Grafana's own types read it and write it again without a loss."""
    register_default_plugins()
    board = _board(path)
    assert json.loads(JSONEncoder().encode(Dashboard.from_json(board))) == board


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_panels_do_not_overlap(path: Path) -> None:
    board = _board(path)
    cells = [
        (x, y)
        for panel in board["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("path", _FILES, ids=lambda path: path.stem)
def test_panels_have_titles_units_and_lettered_queries(path: Path) -> None:
    for panel in panels(_board(path)):
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        letters = [target["refId"] for target in panel["targets"]]
        assert letters == list("ABCDEFGH"[: len(letters)])


@recorded.needs_answers
@pytest.mark.contract("ME-39")
def test_names_of_triton_are_those_of_triton() -> None:
    known = set(recorded.answers("metrics_idle_names.json")) | _LATER
    known |= set(re.findall(r"# HELP (\w+)", recorded.log("metrics_summary_latencies_help.txt")))
    asked = {
        name
        for path in _FILES
        for question in questions(path, "1m")
        for name in _NAME.findall(question.expression)
        if name.startswith("nv_")
    }
    assert [name for name in asked if not {name, _SUFFIX.sub("", name)} & known] == []
