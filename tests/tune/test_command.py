"""`penstock tune` on real servers: what it measures, writes, and ends with."""

from __future__ import annotations

import csv
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import text_format

from harness.serving import alive, wait_until
from penstock import cli
from penstock.protocol.model_config_pb2 import ModelConfig
from penstock_client.perf.errors import Status
from penstock_client.perf.server_side import processes_below
from tune.conftest import CONFIG, Tune, write_speaker

pytestmark = pytest.mark.slow

_ENSEMBLE = """\
platform: "ensemble"
max_batch_size: 4
input [ { name: "A" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 2 ] } ]
ensemble_scheduling { step [ {
  model_name: "sleepy" model_version: -1
  input_map { key: "IN" value: "A" }
  output_map { key: "OUT" value: "B" }
} ] }
"""


@pytest.mark.contract("MA-01", "MA-05", "MA-13", "MA-12")
def test_more_instances_of_a_model_that_sleeps_are_best(tune: Tune, models: Path) -> None:
    ran = tune("--mode", "brute", "--instances", "1-2", "--concurrency", "4")
    assert ran.status == 0, ran.printed
    assert ran.changes == [{}, {"instances": 2}]
    assert ran.results["best"]["changes"] == {"instances": 2}
    text = (ran.folder / "best" / "config.pbtxt").read_text()
    assert text.startswith(CONFIG.partition("instance_group")[0])
    assert text.endswith("# few\n")
    assert text_format.Parse(text, ModelConfig()).instance_group[0].count == 2
    assert "best: instances 2" in ran.printed
    assert "times the original's" in ran.printed
    assert (models / "sleepy" / "config.pbtxt").read_text() == CONFIG


@pytest.mark.contract("MA-13", "MA-11")
def test_files_hold_each_load_of_each_variant(tune: Tune) -> None:
    ran = tune("--mode", "brute", "--instances", "1-2", "--concurrency", "1", "4")
    with (ran.folder / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["instances"], row["Load"]) for row in rows] == [
        ("1", "concurrency 1"),
        ("1", "concurrency 4"),
        ("2", "concurrency 1"),
        ("2", "concurrency 4"),
    ]
    assert all(float(row["RAM Usage (MB)"]) > 10 for row in rows)
    page = (ran.folder / "report.html").read_text()
    assert page.count("<svg") == 2
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert {each["load"] for each in ran.results["front"]} <= {row["Load"] for row in rows}


@pytest.mark.contract("MA-02", "MA-13")
def test_the_best_variants_have_pages_and_configurations(tune: Tune) -> None:
    words = ["--parameter", "seconds=0.001,0.1", "--mode", "brute", "-c", "1"]
    ran = tune(*words)
    places = [ran.folder / "top" / str(number) for number in (1, 2, 3)]
    texts = [(place / "config.pbtxt").read_text() for place in places]
    assert '"0.001"' in texts[0]
    assert texts[1] == CONFIG
    assert '"0.1"' in texts[2]
    page = (places[0] / "perf.html").read_text()
    assert "parameter.seconds 0.001" in page
    assert "compute infer" in page
    assert tune(*words, "--resume", "--top", "1").status == 0
    assert places[0].exists()
    assert not places[1].exists()


@pytest.mark.parametrize("given", [[], ["--input-count", "10000"]])
def test_a_response_cache_answers_requests_that_came_before(tune: Tune, given: list[str]) -> None:
    ran = tune("--cache", "on", "off", "-c", "1", "--mode", "brute", "--", *given)
    assert ran.status == 0, ran.printed
    loads = {each["settings"]["cache"]: each["loads"][0] for each in ran.results["variants"]}
    (served,) = loads[True]["server"]["models"]
    assert (served["executions"] < served["requests"] / 2) == (not given)
    assert ("all requests were the same" in ran.printed) == (not given)


@pytest.mark.contract("MA-15")
def test_settings_of_an_engine_are_searched_with_prompts(tune: Tune, models: Path) -> None:
    write_speaker(models)
    words = ["--engine", "step_ms=1,4", "-c", "1", "-d", "0.6", "--max-ttft", "10s"]
    ran = tune(*words, model="speaker")
    assert ran.status == 0, ran.printed
    assert ran.results["objectives"] == {"tokens": 1.0}
    assert ran.results["best"]["changes"] == {"engine.step_ms": 1}
    loads = [each["loads"][0] for each in ran.results["variants"]]
    assert all(each["responses_per_request"] == 32 for each in loads)
    written = json.loads((ran.folder / "best" / "1" / "model.json").read_text())
    assert written == {"name": "speaker", "step_ms": 1}
    kept = json.loads((models / "speaker" / "1" / "model.json").read_text())
    assert kept["step_ms"] == 4


@pytest.mark.contract("MA-03")
def test_the_best_is_measured_once_more_beside_the_original(tune: Tune) -> None:
    ran = tune("--parameter", "seconds=0.001", "--concurrency", "1", "--rounds", "2")
    assert ran.status == 0, ran.printed
    assert "once more, 2 times in turns, by the original's:" in ran.printed
    check = ran.results["check"]
    assert len(check["rounds"]) == 2
    assert check["figures"]["throughput"]["ratio"] > 1.02
    assert ran.results["best"]["changes"] == {"parameter.seconds": "0.001"}


@pytest.mark.contract("MA-06")
def test_a_climb_stops_where_nothing_gets_better(tune: Tune, models: Path) -> None:
    mode = 'parameters { key: "mode" value { string_value: "as it is" } }\n'
    (models / "sleepy" / "config.pbtxt").write_text(CONFIG + mode)
    ran = tune("--batch-sizes", "1,2,4,8", "--concurrency", "1")
    assert ran.status == 0, ran.printed
    assert ran.changes == [{}, {"max_batch_size": 8}, {"max_batch_size": 2}], ran.printed


@pytest.mark.contract("MA-04")
def test_without_settings_those_of_the_model_are_searched(tune: Tune) -> None:
    ran = tune("--variants", "1", "-c", "1")
    assert ran.status == 0, ran.printed
    names = set(ran.results["variants"][0]["settings"])
    assert names == {"instances", "max_batch_size", "queue_delay"}
    assert "the budget of 1 variants is spent" in ran.printed


@pytest.mark.contract("MA-14")
def test_a_resumed_search_measures_only_what_is_missing(tune: Tune) -> None:
    words = ["--mode", "brute", "--instances", "1-3", "--concurrency", "1"]
    first = tune(*words, "--variants", "2")
    kept = (first.folder / "measurements.jsonl").read_text()
    assert tune(*words).status == Status.USAGE
    second = tune(*words, "--resume")
    assert second.status == 0, second.printed
    assert second.changes == [{}, {"instances": 2}, {"instances": 3}]
    whole = (second.folder / "measurements.jsonl").read_text()
    assert whole.startswith(kept)
    assert whole.count("\n") == kept.count("\n") + 1
    assert tune("--instances", "1-2", "--resume", "-c", "1", "-d", "0.4").status == Status.USAGE
    other = tune("--instances", "1-2", "--resume", "-c", "2")
    assert other.status == Status.USAGE
    assert "measured with another load" in other.printed


@pytest.mark.contract("MA-10")
def test_limits_that_nothing_keeps_tell_what_came_closest(tune: Tune) -> None:
    words = ["--mode", "brute", "--instances", "1-2", "--concurrency", "1", "--max-p99", "1ms"]
    ran = tune(*words, "--max-memory", "100GiB")
    assert ran.status == Status.GATE
    assert "no variant keeps the limits; closest comes" in ran.printed
    assert "latency_ms.p99" in ran.printed
    assert ran.results["best"] is None
    assert not (ran.folder / "best").exists()


@pytest.mark.contract("MA-03", "MA-10")
def test_a_limit_chooses_a_smaller_load(tune: Tune) -> None:
    """Four at a time on one instance wait for each other; one at a time does not."""
    ran = tune("--instances", "1", "--concurrency", "1", "4", "--max-p99", "150ms")
    assert ran.status == 0, ran.printed
    assert ran.results["best"]["load"] == "concurrency 1"


def test_a_variant_that_does_not_load_is_recorded_and_the_search_goes_on(tune: Tune) -> None:
    ran = tune("--mode", "brute", "--parameter", "mode=refuse,fail,well", "--concurrency", "1")
    assert ran.status == 0, ran.printed
    found = {each["changes"].get("parameter.mode"): each for each in ran.results["variants"]}
    assert "this mode is refused" in found["refuse"]["failure"]
    assert not found["fail"]["keeps_limits"]
    assert found["well"]["keeps_limits"]


def test_a_server_that_dies_under_a_load_ends_its_variant_only(tune: Tune) -> None:
    ran = tune("--mode", "brute", "--parameter", "mode=kill,well", "--concurrency", "1")
    assert ran.status == 0, ran.printed
    found = {each["changes"].get("parameter.mode"): each for each in ran.results["variants"]}
    assert "the server ended with signal SIGKILL" in found["kill"]["failure"]
    assert found["well"]["keeps_limits"]


def test_a_model_that_cannot_be_measured_as_it_is_ends_the_search(tune: Tune, models: Path) -> None:
    config = models / "sleepy" / "config.pbtxt"
    config.write_text(CONFIG + 'parameters { key: "mode" value { string_value: "refuse" } }\n')
    ran = tune("--instances", "1-2")
    assert ran.status == Status.UNREACHABLE
    assert "model 'sleepy' cannot be measured as it is: " in ran.printed
    assert "this mode is refused" in ran.printed


def test_shape_of_inputs_is_perfs_matter(tune: Tune, models: Path) -> None:
    config = models / "sleepy" / "config.pbtxt"
    config.write_text(CONFIG.replace("dims: [ 2 ]", "dims: [ -1 ]"))
    refused = tune("--instances", "1", "-c", "1")
    assert refused.status == Status.UNREACHABLE
    assert "such as -- --shape IN:4" in refused.printed
    ran = tune("--instances", "1", "-c", "1", "--resume", "--", "--shape", "IN:3")
    assert ran.status == Status.USAGE, ran.printed
    assert "measured with another load" in ran.printed


@pytest.mark.contract("MA-14")
def test_control_c_reports_what_was_measured(models: Path, tmp_path: Path) -> None:
    output = tmp_path / "tuned"
    words = ["--model-repository", str(models), "--output", str(output), "--mode", "brute"]
    loads = ["--instances", "1-9", "-c", "1", "-d", "0.3", "--warmup", "0"]
    command = [sys.executable, "-m", "penstock", "tune", "sleepy", *words, *loads]
    record = output / "sleepy" / "measurements.jsonl"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: record.exists() and record.read_text().count('"figures"') >= 2)
        process.send_signal(signal.SIGINT)
        printed = process.communicate(timeout=60)[0]
    assert process.returncode == Status.INTERRUPTED
    assert "interrupted: these are the results until then" in printed
    results = json.loads((output / "sleepy" / "results.json").read_text())
    assert len(results["variants"]) >= 2
    assert (output / "sleepy" / "report.html").exists()


def test_no_server_outlives_a_search_that_is_killed(models: Path, tmp_path: Path) -> None:
    words = ["--model-repository", str(models), "--output", str(tmp_path / "tuned"), "-c", "1"]
    command = [sys.executable, "-m", "penstock", "tune", "sleepy", *words, "-d", "60"]
    log = tmp_path / "tuned" / "sleepy" / "server.log"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        wait_until(lambda: log.exists() and "successfully loaded 'sleepy'" in log.read_text())
        below = list(processes_below(process.pid))[1:]
        process.kill()
    assert len(below) >= 2
    wait_until(lambda: not any(map(alive, below)))


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["--model-repository", "nowhere", "m"], 2, "model repository nowhere cannot be read"),
        (["m"], 2, "--model-repository is needed"),
        (["--model-repository", "."], 2, "name a model"),
        (["m", "--model-repository", ".", "--instances", "x"], 2, "'x' is not one or more"),
        (["m", "--model-repository", ".", "-c", "1", "-r", "1"], 2, "exclude each other"),
        (["m", "--model-repository", ".", "--objective", "goodput"], 2, "needs --goodput"),
        (["m", "--model-repository", ".", "--", "-c", "4"], 2, "-c cannot stand behind --"),
        (["m", "--model-repository", ".", "--server-flag", "grpc-port=1"], 2, "sets it itself"),
    ],
)
def test_wrong_options_are_refused(
    words: list[str], status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ended = cli.main(["tune", *words])
    except SystemExit as end:
        ended = int(end.code or 0)
    assert ended == status
    assert text in capsys.readouterr().err


@pytest.mark.contract("MA-07")
def test_optuna_chooses_what_is_measured(tune: Tune) -> None:
    words = ["--mode", "optuna", "--parameter", "seconds=0.001,0.2", "--trials", "1-2"]
    ran = tune(*words, "--concurrency", "1")
    assert ran.status == 0, ran.printed
    assert len(ran.changes) == 2
    assert ran.changes[0] == {}


def test_an_ensemble_finds_the_models_of_its_steps(tune: Tune, models: Path) -> None:
    (models / "both" / "1").mkdir(parents=True)
    (models / "both" / "config.pbtxt").write_text(_ENSEMBLE)
    ran = tune("--batch-sizes", "1,4", "--mode", "brute", "--concurrency", "1", model="both")
    assert ran.status == 0, ran.printed
    assert ran.changes == [{}, {"max_batch_size": 1}]


def test_settings_of_an_engine_need_its_file(tune: Tune) -> None:
    ran = tune("--engine", "max_num_seqs=1,2")
    assert ran.status == Status.UNREACHABLE
    assert "model 'sleepy' has no model.json" in ran.printed


def test_an_unknown_model_gets_the_right_one(tune: Tune) -> None:
    ran = tune(model="sleppy")
    assert ran.status == Status.UNREACHABLE
    assert "did you mean 'sleepy'?" in ran.printed


def test_a_broken_configuration_is_named(tune: Tune, models: Path) -> None:
    (models / "sleepy" / "config.pbtxt").write_text("max_batch: 4")
    ran = tune()
    assert ran.status == Status.UNREACHABLE
    assert 'has no field named "max_batch"' in ran.printed
