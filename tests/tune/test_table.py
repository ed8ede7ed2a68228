"""Results on the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.tune.choice import Aims, objective
from penstock.tune.measured import Measured, Ranking
from penstock.tune.report.table import others_cores


def _figures(busy: float, server: dict[str, Any]) -> dict[str, Any]:
    return {
        "requests": 1,
        "failed": 0,
        "inferences_per_second": 1.0,
        "client": {"machine_busy": busy, "busy": 0.25},
        "server": server,
    }


@pytest.mark.parametrize(
    ("busy", "server", "others"),
    [
        (1.0, {"cpu_cores": 2.75}, 1.0),
        (0.5, {"cpu_cores": 1.75}, 0.0),
        (1.0, {}, -0.25),  # unknown: its processes were just ending
    ],
)
def test_cores_of_other_programs_are_what_is_left(
    busy: float, server: dict[str, Any], others: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    points = (_figures(0.0, {"cpu_cores": 4.0}), _figures(busy, server))
    aims = Aims((objective("throughput"),))
    assert others_cores(Ranking([Measured({}, {}, points)], aims)) == others
