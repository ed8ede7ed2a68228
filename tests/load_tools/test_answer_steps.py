"""The scenario of the steps of a whole answer: what it makes of notes that are given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import loadtest.first_token
import pytest
from loadtest.llm_scenarios.answer_steps import Notes, answer_rows

_NOTES = Path(loadtest.first_token.__file__).parent
_ALL_PATCHED = """
import importlib, sitecustomize
for module in sitecustomize._PATCHES:
    importlib.import_module(module)
"""
_BEFORE = (
    "client sent",
    "http read",
    "front sent",
    "process read",
    "handler begun",
    "body checked",
    "prompt made",
    "queued",
    "added",
)
_AFTER = ("answer built", "answer sent", "front has the answer", "http written", "client read")
_ALONE = {"whole_p50": 30e-3, "steps_ms": 20e-3}


def _burst(streams: int = 1) -> dict[str, list[float]]:
    """A millisecond from note to note, and three steps of the engine, a millisecond apart."""
    before = {name: [float(at)] * streams for at, name in enumerate(_BEFORE)}
    after = {name: [float(at)] * streams for at, name in enumerate(_AFTER, 15)}
    burst = before | after | {"step begun": [9.0, 11.0, 13.0], "step ended": [10.0, 12.0, 14.0]}
    return {name: [at * 1e-3 for at in times] for name, times in burst.items()}


def _rows(*bursts: Notes, streams: int = 1) -> dict[str, tuple[float | str, float | str]]:
    rows = answer_rows("0.3ms", "chat", streams, bursts, [_ALONE] * len(bursts))
    return {str(row["until"]): (row["us"], row["more"]) for row in rows}


@pytest.mark.parametrize("streams", [1, 4])
def test_the_steps_come_to_the_whole(streams: int) -> None:
    rows = _rows(_burst(streams), streams=streams)
    whole, _ = rows.pop("all of it")
    assert sum(float(us) for us, _ in rows.values()) == pytest.approx(whole)
    assert whole == pytest.approx(19_000)


def test_the_engine_has_steps_and_what_is_between_them() -> None:
    rows = _rows(_burst())
    assert rows["in steps"] == pytest.approx((3_000, 2_980))
    assert rows["between steps"] == pytest.approx((2_000, 1_990))
    assert rows["all of it"][1] == pytest.approx(18_970)
    assert rows["queued"][1] == ""


def test_a_burst_whose_notes_came_late_is_left_out() -> None:
    late = _burst() | {"http written": []}
    assert _rows(late, _burst()) == _rows(_burst())


@pytest.mark.slow
def test_what_the_notes_are_taken_of_is_there(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(_NOTES), "FIRST_TOKEN_NOTES": str(tmp_path / "notes-")}
    command = [sys.executable, "-c", _ALL_PATCHED]
    patched = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert patched.returncode == 0, patched.stderr
