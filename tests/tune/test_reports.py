"""The files of a search, by measurements that are written down here."""

from __future__ import annotations

import csv
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from penstock_client.perf.gate import Limit
from penstock_client.perf.load.plan import Point
from penstock_client.tune.choice import Aims, objective
from penstock_client.tune.composition import Composition
from penstock_client.tune.errors import TuneError
from penstock_client.tune.load.loads import Load, Loads
from penstock_client.tune.measured import Measured, Ranking, by_model, headline, mebibytes
from penstock_client.tune.model_files import ModelFiles, read_files
from penstock_client.tune.options import Plan
from penstock_client.tune.report.files import document, write_results
from penstock_client.tune.report.html import html_report
from penstock_client.tune.session import Outcome

MIB = 1 << 20
AIMS = Aims(
    (objective("throughput", 2.0), objective("p99")), (Limit("latency_ms.p99", None, 50.0),)
)


def figures(throughput: float, p99: float, label: str = "concurrency 1", **more: Any) -> Any:
    return {
        "load": {"label": label, "concurrency": 1},
        "requests": 10,
        "failed": 0,
        "cut_off": 0,
        "seconds": 1.0,
        "throughput": throughput,
        "inferences_per_second": throughput,
        "stable": None,
        "latency_ms": {
            "mean": p99 / 2,
            "std": 0.0,
            "min": 0.0,
            "max": p99,
            "p50": p99 / 4,
            "p90": p99 / 2,
            "p95": p99 / 1.5,
            "p99": p99,
            "p99.9": p99,
        },
        "curves": {"latency_ms": [], "ttft_ms": [], "gap_ms": []},
        "windows": [],
        "server": {"models": []},
        "client": {
            "processes": 1,
            "cpu_us_per_request": None,
            "busy": 0.1,
            "machine_busy": 0.2,
            "bottleneck": "",
        },
        "errors": {},
        "problems": [],
        "memory_bytes": 300 * MIB,
        "model_memory_bytes": 100 * MIB,
        **more,
    }


ORIGINAL = Measured({}, {"instances": 1}, (figures(100, 10), figures(120, 40, "concurrency 2")))
BEST = Measured({"instances": 2}, {"instances": 2}, (figures(300, 20),))
SLOW = Measured({"instances": 3}, {"instances": 3}, (figures(400, 60),))
DOWN = Measured({"instances": 4}, {"instances": 4}, (), "it would not <start>")
VARIANTS = [ORIGINAL, BEST, SLOW, DOWN]


@pytest.fixture
def model(tmp_path: Path) -> ModelFiles:
    folder = tmp_path / "models" / "m"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "model.json").write_text('{"max_num_seqs": 4, "other": 1}')
    (folder / "config.pbtxt").write_text('name: "m" # mine\n')
    return read_files(folder)


def outcome(tmp_path: Path, model: ModelFiles, variants: list[Measured] = VARIANTS) -> Outcome:
    plan = Plan(
        model="m",
        repositories=(),
        output=tmp_path / "out",
        mode="quick",
        values={},
        loads=Loads((Load(Point(concurrency=1), 1),)),
        aims=AIMS,
        top=2,
    )
    return Outcome(plan, Composition(model), Ranking(variants, AIMS), ended="it was enough")


def test_all_files_of_a_search_are_written(tmp_path: Path, model: ModelFiles) -> None:
    out = tmp_path / "out"
    (out / "top" / "9").mkdir(parents=True)  # of an earlier search
    written = write_results(outcome(tmp_path, model))
    assert [str(path.relative_to(out)) for path in written] == [
        "best/config.pbtxt",
        "best/perf.html",
        "top/1",
        "top/2",
        "report.html",
        "results.json",
        "results.csv",
    ]
    best = (out / "best" / "config.pbtxt").read_text()
    assert best.startswith('name: "m" # mine\n')
    assert "count: 2" in best
    assert sorted(path.name for path in (out / "top").iterdir()) == ["1", "2"]
    assert "count: 2" in (out / "top" / "1" / "config.pbtxt").read_text()
    assert (out / "top" / "2" / "config.pbtxt").read_text() == 'name: "m" # mine\n'
    assert "instances 2" in (out / "best" / "perf.html").read_text()
    assert json.loads((out / "results.json").read_text()) == json.loads(
        json.dumps(document(outcome(tmp_path, model)))
    )


def test_nothing_measured_leaves_the_figures_alone(tmp_path: Path, model: ModelFiles) -> None:
    written = write_results(outcome(tmp_path, model, [DOWN]))
    assert [path.name for path in written] == ["results.json"]
    (tmp_path / "out" / "report.html").mkdir()
    with pytest.raises(TuneError, match=r"^results cannot be written: "):
        write_results(outcome(tmp_path, model))


def test_the_document_has_all_figures_but_those_of_charts(
    tmp_path: Path, model: ModelFiles
) -> None:
    told = document(outcome(tmp_path, model))
    assert (told["model"], told["mode"], told["ended"]) == ("m", "quick", "it was enough")
    assert told["objectives"] == {"throughput": 2.0, "p99": 1.0}
    assert told["limits"] == [{"figure": "latency_ms.p99", "min": None, "max": 50.0}]
    assert told["best"] == {"changes": {"instances": 2}, "load": "concurrency 1"}
    assert told["closest"] is told["check"] is None
    assert [(each["changes"], each["load"]) for each in told["front"]] == [
        ({}, "concurrency 1"),
        ({"instances": 2}, "concurrency 1"),
        ({"instances": 3}, "concurrency 1"),
    ]
    kept = [(each["keeps_limits"], each["failure"]) for each in told["variants"]]
    assert kept == [(True, None), (True, None), (False, None), (False, "it would not <start>")]
    assert told["variants"][1]["settings"] == {"instances": 2}
    (load,) = told["variants"][1]["loads"]
    assert load["throughput"] == 300
    assert not {"curves", "windows"} & load.keys()


def test_where_no_variant_keeps_the_limits_the_closest_is_named(
    tmp_path: Path, model: ModelFiles
) -> None:
    slower = Measured({"instances": 5}, {"instances": 5}, (figures(900, 90),))
    told = document(outcome(tmp_path, model, [slower, SLOW]))
    assert told["best"] is None
    assert told["closest"] == {"changes": {"instances": 3}, "load": "concurrency 1"}


def test_a_row_for_each_load_has_model_analyzer_s_names(tmp_path: Path, model: ModelFiles) -> None:
    write_results(outcome(tmp_path, model))
    with (tmp_path / "out" / "results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[2] == {
        "Model": "m",
        "Load": "concurrency 1",
        "instances": "2",
        "Satisfies Constraints": "Yes",
        "Throughput (infer/sec)": "300",
        "Avg Latency (ms)": "10.0",
        "p50 Latency (ms)": "5.0",
        "p90 Latency (ms)": "10.0",
        "p95 Latency (ms)": str(20 / 1.5),
        "p99 Latency (ms)": "20",
        "RAM Usage (MB)": "300.0",
        "Max GPU Memory Usage (MB)": "",
        "Goodput (infer/sec)": "",
        "Responses/Second": "",
        "Tokens/Second": "",
        "Failed": "0",
        "Limits Broken": "",
    }
    assert rows[3]["Satisfies Constraints"] == "No"
    assert rows[3]["Limits Broken"] == "latency_ms.p99 60 is over 50"
    assert [row["Load"] for row in rows[:2]] == ["concurrency 1", "concurrency 2"]


class Page(HTMLParser):
    """The texts of a page, outside of styles."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._style = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._style = tag == "style"

    def handle_data(self, data: str) -> None:
        if data.strip() and not self._style:
            self.texts.append(data.strip())


def texts(page: str) -> list[str]:
    parser = Page()
    parser.feed(page)
    return parser.texts


def test_the_page_has_charts_tables_and_the_best_settings(
    tmp_path: Path, model: ModelFiles
) -> None:
    told = texts(html_report(outcome(tmp_path, model)))
    assert told[0] == "penstock tune: m"
    for text in (
        "p99 latency over throughput",
        "inferences/s",
        "Memory at the best load",
        "MiB",
        "server",
        "model",
        "front",
        "others",
        "original",
        "best",
        "Variants at their best load",
        "failed: instances 4: it would not <start>",
        "Nothing beats these in throughput and p99 latency",
        "instances 3",
        "latency_ms.p99 60 is over 50",
        "config.pbtxt of m in the best",
    ):
        assert text in told, text
    assert "count: 2" in told[-1]


def test_a_page_without_memory_has_one_chart_and_without_a_winner_no_settings(
    tmp_path: Path, model: ModelFiles
) -> None:
    bare = Measured({"instances": 3}, {}, (figures(400, 60, memory_bytes=None),))
    told = texts(html_report(outcome(tmp_path, model, [bare])))
    assert "Memory at the best load" not in told
    assert "config.pbtxt of m in the best" not in told
    assert "p99 latency over throughput" in told


def test_a_variant_is_told_in_one_line() -> None:
    assert [*BEST.line(2, AIMS)] == [
        "[2] instances 2: 300.0 inferences/s at concurrency 1, p99 20 ms, 300 MiB"
    ]
    assert [*DOWN.line(4, AIMS)] == ["[4] instances 4: failed: it would not <start>"]
    assert [*Measured({}, {}, ()).line(1, AIMS)] == ["[1] original: nothing was measured"]
    bare = figures(1.0, 99, memory_bytes=None, failed=5)
    assert [*headline(bare, AIMS)] == [
        "1.0 inferences/s at concurrency 1",
        "p99 99 ms",
        "5 REQUESTS FAILED",
        "LATENCY_MS.P99 99 IS OVER 50",
    ]
    assert [*headline({**bare, "latency_ms": None, "failed": 0}, Aims(()))] == [
        "1.0 inferences/s at concurrency 1"
    ]


def test_gains_are_told_by_objective() -> None:
    ranking = Ranking(VARIANTS, AIMS)
    assert [*ranking.gains()] == [("throughput", 100.0, 300.0), ("p99", 10.0, 20.0)]
    assert [*Ranking([SLOW], AIMS).gains()] == []
    assert [one.failure for one in ranking.failed] == ["it would not <start>"]
    assert ranking.limits == AIMS.limits
    assert ranking.closest is None
    assert ranking.winner is not None
    assert ranking.winner.variant is BEST


def test_several_models_of_one_load_are_told_apart() -> None:
    own = figures(1, 2)
    both = {"models": {"a": own, "b": own}}
    assert [each["load"]["label"] for each in by_model(both)] == [
        "a: concurrency 1",
        "b: concurrency 1",
    ]
    assert by_model(own) == [own]
    assert mebibytes(3 * MIB) == 3.0


def test_settings_of_an_engine_are_written_with_its_other_keys(
    tmp_path: Path, model: ModelFiles
) -> None:
    changed = Measured({"engine.max_num_seqs": 8}, {"engine.max_num_seqs": 8}, (figures(500, 5),))
    write_results(outcome(tmp_path, model, [ORIGINAL, changed]))
    written = tmp_path / "out" / "best" / "1" / "model.json"
    assert written.read_text() == '{\n  "max_num_seqs": 8,\n  "other": 1\n}\n'


def test_a_variant_is_a_repository_of_links_and_changed_files(
    tmp_path: Path, model: ModelFiles
) -> None:
    beside = tmp_path / "models" / "beside"
    beside.mkdir()
    (tmp_path / "models" / "m" / "1" / "weights").write_text("w")
    whole = Composition(model, neighbours=(beside,))
    target = tmp_path / "target"
    for changes in ({"instances": 2}, {"engine.max_num_seqs": 8}):
        whole.write_variant(changes, target)
        assert (target / "beside").is_symlink()
        assert not (target / "m" / "config.pbtxt").is_symlink()
        assert (target / "m" / "1" / "weights").read_text() == "w"
    assert json.loads((target / "m" / "1" / "model.json").read_text())["max_num_seqs"] == 8
    assert json.loads((model.path / "1" / "model.json").read_text())["max_num_seqs"] == 4
    assert not (target / "m" / "1").is_symlink()
