"""Results on the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from penstock_client.perf.gate import Limit
from penstock_client.tune.choice import Aims, objective
from penstock_client.tune.measured import Measured, Ranking
from penstock_client.tune.report.table import others_cores, table


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


def _ranked(*throughputs: float, refuted: bool = False, most_ms: float = 1e3) -> Ranking:
    """The original and variants of more instances, by their inferences a second; the latency is a
    tenth of that."""
    variants = [
        Measured(
            {"instances": count} if count > 1 else {},
            {"instances": count},
            (
                {
                    **_figures(0.0, {}),
                    "load": {"label": "concurrency 1"},
                    "inferences_per_second": each,
                    "latency_ms": {"p50": 1.0, "p99": each / 10},
                },
            ),
        )
        for count, each in enumerate(throughputs, 1)
    ]
    limits = (Limit("latency_ms.p99", None, most_ms),)
    return Ranking(variants, Aims((objective("throughput"),), limits), is_refuted=refuted)


@pytest.mark.parametrize(
    ("ranking", "reasons"),
    [
        (
            _ranked(100.0, 150.0, 50.0),
            ["best, 50.0% better than the original", "original", "50.0% worse than the original"],
        ),
        (
            _ranked(100.0, 101.0),
            ["1.0% better than the original, less than 2% is noise", "best, original"],
        ),
        (
            _ranked(100.0, 150.0, refuted=True),
            ["50.0% better than the original, which did not last", "best, original"],
        ),
        (
            _ranked(100.0, 150.0, most_ms=12),
            ["best, original", "latency_ms.p99 15 is over 12"],
        ),
    ],
)
def test_the_table_says_beside_each_variant_why_it_is_chosen_or_not(
    ranking: Ranking, reasons: list[str]
) -> None:
    head, columns, *rows = table(ranking)
    assert head == "  each at its best load, the best first by throughput"
    assert [row[columns.index("why") :] for row in rows] == reasons


def test_weights_of_objectives_are_named_above_the_table() -> None:
    aims = Aims((objective("throughput", 3.0), objective("p99")))
    head = next(table(Ranking([Measured({}, {}, (_figures(0.0, {}),))], aims)))
    assert head.endswith("the best first by throughput (weight 3) and p99")
