"""Several models measured at the same time: their figures, their weights, one search."""

from __future__ import annotations

import csv
import json
import shutil
from math import log
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_client.perf.errors import PerfError, Status
from penstock_client.perf.gate import Limit
from penstock_client.perf.load.plan import Point
from penstock_client.tune.choice import Aims, broken, objective, standing
from penstock_client.tune.command import run
from penstock_client.tune.load.joint import JointTest, combined
from penstock_client.tune.load.load_test import Measurement
from penstock_client.tune.load.loads import Load

_THROUGHPUT = (objective("throughput"),)


def _figures(rate: float = 100.0, p99: float = 10.0, **others: Any) -> dict[str, Any]:
    return {
        "load": {"label": "concurrency 1"},
        "seconds": 1.0,
        "requests": 10,
        "failed": 0,
        "cut_off": 0,
        "errors": {},
        "throughput": rate,
        "inferences_per_second": rate,
        "latency_ms": {"p50": p99 / 2, "p99": p99},
        "client": {"busy": 0.25, "machine_busy": 0.5},
        "server": {"cpu_cores": 2.0},
        "problems": [],
        "memory_bytes": 1000,
        **others,
    }


@pytest.mark.slow
@pytest.mark.contract("MA-08")
def test_two_models_are_one_search(
    models: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(models / "sleepy", models / "second")
    config = models / "second" / "config.pbtxt"
    config.write_text(config.read_text().replace('name: "sleepy"', 'name: "second"'))
    words = ["sleepy", "second", "--together", "--weight", "second=3"]
    words += ["--model-repository", str(models), "--output", str(tmp_path / "tuned")]
    words += ["--instances", "1-2", "-c", "2", "-d", "0.3", "--warmup", "0.1"]
    status = run([*words, "--variants", "2", "--rounds", "0", "--", "--requests=8"])
    assert status == 0, capfd.readouterr()
    folder = tmp_path / "tuned" / "sleepy+second"
    results = json.loads((folder / "results.json").read_text())
    assert set(results["variants"][0]["settings"]) == {"instances", "second/instances"}
    for variant in results["variants"]:
        both = variant["loads"][0]["models"]
        assert both.keys() == {"sleepy", "second"}
        assert all(each["requests"] > 0 == each["failed"] for each in both.values())
    with (folder / "results.csv").open() as file:
        assert {row["Model"] for row in csv.DictReader(file)} == {"sleepy", "second"}
    assert "second: concurrency 2" in (folder / "best" / "perf.html").read_text()


@pytest.mark.contract("MA-08")
@given(st.floats(1, 1e4), st.floats(1, 1e4), st.floats(0.1, 10))
def test_gains_count_by_weight(one: float, other: float, weight: float) -> None:
    figures = combined({"a": _figures(one), "b": _figures(other)})
    found = standing(figures, Aims(_THROUGHPUT, weights={"b": weight}))
    assert found.kept
    assert found.value == pytest.approx(log(one) + weight * log(other))


def test_a_limit_that_one_model_breaks_is_broken() -> None:
    figures = combined({"a": _figures(p99=5.0), "b": _figures(p99=30.0)})
    limits = (Limit("latency_ms.p99", None, 20.0),)
    assert standing(figures, Aims(_THROUGHPUT, limits)).rank == 1
    assert broken(figures, limits) == ["b: latency_ms.p99 30 is over 20"]
    nothing = combined({"a": _figures(), "b": _figures(requests=0, latency_ms=None)})
    assert standing(nothing, Aims(_THROUGHPUT)).rank == 0


def test_figures_of_several_are_sums_and_the_worst() -> None:
    found = combined({"a": _figures(100, 5, goodput=7.0), "b": _figures(300, 30)})
    assert (found["throughput"], found["latency_ms"]["p99"], found["goodput"]) == (400, 30, 7)
    assert found["server"] == {"cpu_cores": 2.0, "cpu_us_per_request": 5000.0}
    assert found["memory_bytes"] == 1000
    assert combined({"a": _figures(latency_ms=None), "b": _figures()})["latency_ms"] is None


class _Test:
    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self.measured = False

    def measure(self, load: Load) -> Measurement:
        self.measured = True
        if self._fails:
            raise PerfError("no answer")
        return Measurement(_figures(), interrupted=False)


def test_one_model_that_cannot_be_measured_fails_all() -> None:
    tests = {"a": _Test(fails=True), "b": _Test(fails=False)}
    with pytest.raises(PerfError, match="no answer"):
        JointTest(tests).measure(Load(Point(concurrency=1)))
    assert all(each.measured for each in tests.values())


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["a", "--together"], "--together is for several models"),
        (["a", "b", "--together", "--weight", "c=1"], "--weight c: it is not one of a, b"),
        (["a", "b", "--together", "--weight", "a=0"], "'0' is not a number above 0"),
    ],
)
def test_what_makes_no_joint_search_is_refused(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run([*words, "--model-repository", "."])
    assert ended.value.code == Status.UNREACHABLE
    assert text in capsys.readouterr().err
