"""Limits of results: what a file may say, and the sentence for each limit that is not held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock_client.perf.errors import PerfError
from penstock_client.perf.gate import Limit, check_usable, figure_at, read_gate, violations

LOAD = {"load": {"label": "concurrency 1"}, "throughput": 100.0, "latency_ms": {"p99.9": 7}}


def told(*limits: Limit, **results: Any) -> list[str]:
    return list(violations(limits, {"points": [LOAD], **results}))


def test_a_bound_is_held_where_it_is_met_exactly() -> None:
    assert told(Limit("throughput", 100.0, 100.0)) == []
    assert told(Limit("throughput", 100.5, None)) == [
        "gate: concurrency 1: throughput is 100, and has to be 100.5 or more"
    ]
    assert told(Limit("throughput", None, 99.5)) == [
        "gate: concurrency 1: throughput is 100, and has to be 99.5 or less"
    ]
    assert told(Limit("latency_ms.p99.9", 0, 7)) == []
    assert told(Limit("speed", 0, None)) == ["gate: concurrency 1: there is no figure speed"]


def test_what_is_no_number_holds_nothing() -> None:
    assert told(Limit("throughput", 0.0, None), points=[{**LOAD, "throughput": float("nan")}]) == [
        "gate: concurrency 1: throughput is nan, and has to be 0 or more"
    ]
    assert len(told(Limit("throughput", 0.0, None), points=[{**LOAD, "throughput": None}])) == 1


def test_of_two_servers_the_rounds_of_the_first_count_and_the_figures_of_both() -> None:
    rounds = [
        {**LOAD, "side": "A", "load": {"label": "A 1"}},
        {**LOAD, "side": "B", "load": {"label": "B 1"}, "throughput": 1.0},
    ]
    results = {"points": [], "rounds": rounds, "comparison": {"figures": {"p50": {"ratio": 0.5}}}}
    assert told(Limit("throughput", 101, None), **results) == [
        "gate: A 1: throughput is 100, and has to be 101 or more"
    ]
    assert told(Limit("comparison.p50.ratio", 0.6, None), **results) == [
        "gate: comparison: comparison.p50.ratio is 0.5, and has to be 0.6 or more"
    ]
    assert told(Limit("throughput", 1, None), points=[]) == [
        "gate: nothing was measured for throughput"
    ]


def test_a_comparison_needs_two_servers() -> None:
    limit = Limit("comparison.p50.ratio", 1, None)
    check_usable([limit], compared=True)
    check_usable([Limit("throughput", 1, None)], compared=False)
    with pytest.raises(PerfError, match=r"^gate: comparison\.p50\.ratio is for --compare A B$"):
        check_usable([limit], compared=False)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[limits", "not TOML"),
        ("[limits]\na = {}", "a: write { min = 1.0 }, { max = 2.0 } or both"),
        ("[limits]\na = { most = 1 }", "a: write { min = 1.0 }"),
        ("[limits]\na = { min = '1' }", "a: write { min = 1.0 }"),
        ("[more]\n", "more is not known: there is the table [limits]"),
        ("[limits]\n", "there is no table [limits] with something in it"),
        ("limits = 1", "there is no table [limits] with something in it"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "gate.toml"
    file.write_text(text)
    with pytest.raises(PerfError) as refused:
        read_gate(file)
    assert str(refused.value).startswith(f"{file}: {problem}")


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(PerfError) as refused:
        read_gate(tmp_path / "none")
    assert str(refused.value) == f"{tmp_path / 'none'}: No such file or directory"


def test_limits_are_read_with_their_bounds(tmp_path: Path) -> None:
    file = tmp_path / "gate.toml"
    file.write_text(
        "[limits]\na = { min = 1 }\n'b.p99.9' = { max = 2.5 }\nc = { min = 0, max = 1 }"
    )
    assert read_gate(file) == [
        Limit("a", 1, None),
        Limit("b.p99.9", None, 2.5),
        Limit("c", 0, 1),
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("a", {"b.c": {"d": 1}, "b": {"c.d": None}}),
        ("a.b.c.d", 1),
        ("a.x", None),
        ("a.b.c.d.e", None),
    ],
)
def test_a_name_in_a_path_may_have_dots(path: str, value: Any) -> None:
    assert figure_at({"a": {"b.c": {"d": 1}, "b": {"c.d": None}}}, path) == value
