"""The docs describe every metric that the server has."""

from __future__ import annotations

from pathlib import Path

import pytest

from telemetry.whole_page import own_families

_DOCS = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text().splitlines()
_KINDS = {family.name: family.kind.name.lower() for family in own_families()}


@pytest.mark.parametrize("name", _KINDS)
def test_a_metric_has_a_row_with_its_type(name: str) -> None:
    rows = [line for line in _DOCS if line.startswith(f"| `{name}` |")]
    assert len(rows) == 1
    assert f"| {_KINDS[name]} |" in rows[0]
