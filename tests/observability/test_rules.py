"""Prometheus' configuration and rules, checked by its own `promtool`."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from deploy.observability.stack import HERE, write_configuration
from programs.places import find

_ROOT = Path(__file__).parents[2]
_RULES = HERE / "prometheus" / "recording.yml", HERE / "prometheus" / "alerts.yml"
_ALERTS = re.findall(r"- alert: (\w+)\n(.*?)(?=\n\n|\Z)", _RULES[1].read_text(), re.DOTALL)
_PROMTOOL = find("promtool")
needs_promtool = pytest.mark.needs(
    "promtool", "" if _PROMTOOL else "there is no promtool: `make tools` says why"
)


def _promtool(*arguments: str | Path) -> str:
    """What it printed; fails the test if promtool finds a fault."""
    done = subprocess.run([_PROMTOOL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@needs_promtool
def test_promtool_finds_no_fault_in_the_configuration() -> None:
    assert "SUCCESS" in _promtool("check", "config", HERE / "prometheus" / "prometheus.yml")


@needs_promtool
def test_configuration_of_make_observe_is_sound(tmp_path: Path) -> None:
    path = write_configuration(tmp_path, ["127.0.0.1:8002"], "2s")
    assert "2 rule files found" in _promtool("check", "config", path)
    assert "scrape_interval: 2s\n  evaluation_interval: 2s\n" in path.read_text()


@needs_promtool
def test_alerts_fire_when_all_is_wrong_and_not_when_all_is_well(tmp_path: Path) -> None:
    """Every alert and recording rule, on series of an hour."""
    cases = Path(__file__).with_name("alerts.yml").read_text()
    missing = [name for name, _ in _ALERTS if f'alertname="{name}"' not in cases]
    assert missing == []
    tests = tmp_path / "tests.yml"
    tests.write_text(f"rule_files: {json.dumps([str(path) for path in _RULES])}\n{cases}")
    assert "SUCCESS" in _promtool("test", "rules", tests)


@pytest.mark.parametrize(("name", "rule"), _ALERTS, ids=[name for name, _ in _ALERTS])
def test_alert_says_what_is_wrong_and_what_to_do(name: str, rule: str) -> None:
    runbook = (_ROOT / "docs" / "runbook.md").read_text()
    assert re.findall(r"^ {10}(summary|description|runbook):", rule, re.MULTILINE) == [
        "summary",
        "description",
        "runbook",
    ]
    assert f"runbook: docs/runbook.md#{name.lower()}" in rule
    assert f"\n## {name}\n" in runbook


def test_runbook_has_no_alert_that_does_not_exist() -> None:
    runbook = (_ROOT / "docs" / "runbook.md").read_text()
    assert re.findall(r"^## (\w+)$", runbook, re.MULTILINE) == [name for name, _ in _ALERTS]
