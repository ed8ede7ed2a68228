"""Metrics of model processes."""

from __future__ import annotations

import os
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from penstock.metrics.exposition import render
from penstock.models.serving.answers import InstanceProcess
from penstock.system.machine import resident_bytes
from penstock.telemetry.server_families import process_families

PAGE = os.sysconf("SC_PAGE_SIZE")


def _values(*processes: InstanceProcess, proc: Path) -> dict[tuple[str, str], float]:
    """Samples by name, without the family's prefix, and instance."""
    return {
        (sample.name.removeprefix("penstock_model_process_"), sample.labels["model_instance"]): (
            sample.value
        )
        for family in text_string_to_metric_families(render(process_families(processes, proc)))
        for sample in family.samples
    }


def _process(number: int, pid: int | None, restarts: int = 0) -> InstanceProcess:
    return InstanceProcess("m", "1", f"m_{number}", pid, restarts)


def test_a_process_that_runs_has_an_id_and_memory(tmp_path: Path) -> None:
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "statm").write_text("900 300 20 1 0 100 0\n")
    assert _values(_process(0, 42, restarts=3), proc=tmp_path) == {
        ("up", "m_0"): 1,
        ("pid", "m_0"): 42,
        ("resident_memory_bytes", "m_0"): 300 * PAGE,
        ("restarts_total", "m_0"): 3,
    }


def test_a_process_that_is_down_has_neither(tmp_path: Path) -> None:
    down = {("up", "m_1"): 0, ("restarts_total", "m_1"): 1}
    assert _values(_process(1, None, restarts=1), proc=tmp_path) == down


def test_a_process_that_ends_during_a_scrape_has_no_memory(tmp_path: Path) -> None:
    names = {name for name, _ in _values(_process(0, 42), proc=tmp_path)}
    assert names == {"up", "pid", "restarts_total"}


def test_without_model_processes_there_are_no_families() -> None:
    assert render(process_families([])) == ""


def test_memory_is_read_from_the_system() -> None:
    found = resident_bytes(os.getpid())
    assert found is not None
    assert found > 1 << 20
