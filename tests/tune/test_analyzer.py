"""Files of Model Analyzer: what maps, what is named, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from penstock_client.tune.analyzer import file
from penstock_client.tune.analyzer.keys import GLOBAL, OF_A_MODEL, WITHOUT_EFFECT
from penstock_client.tune.analyzer.sweeps import dimensions
from penstock_client.tune.errors import TuneError
from penstock_client.tune.options import BRUTE, OPTUNA, Plan, Trials
from penstock_client.tune.reading import read_plans
from penstock_client.tune.values import named_values


def _plans(tmp_path: Path, content: str, *words: str) -> list[Plan]:
    path = tmp_path / "analyzer.yaml"
    path.write_text(content)
    return read_plans(["--config-file", str(path), *words])


@pytest.mark.contract("MA-01", "MA-05", "MA-09", "MA-10")
def test_a_file_of_a_manual_search(tmp_path: Path) -> None:
    content = """\
model_repository: /models
export_path: results
client_protocol: http
run_config_search_disable: true
triton_server_flags: {log_verbose: 1, strict_readiness: true}
triton_server_environment: {LD_PRELOAD: /op.so}
perf_analyzer_flags:
  shape: ["IN:4", "OTHER:2"]
constraints:
  perf_latency_p99: {max: 100}
profile_models:
  encoder:
    objectives: {perf_throughput: 3, perf_latency_p99: 1}
    constraints:
      gpu_used_memory: {max: 200}
    parameters:
      concurrency: {start: 2, stop: 10, step: 4}
      batch_sizes: 1,2
    model_config_parameters:
      max_batch_size: [6, 8]
      dynamic_batching:
        max_queue_delay_microseconds: [200, 300]
        preferred_batch_size: [[1], [2, 3]]
      instance_group:
        - kind: KIND_CPU
          count: [1, 2]
      parameters:
        threads: {string_value: ["1", "2"]}
  other:
    model_config_parameters: {max_batch_size: 2}
"""
    first, second = _plans(tmp_path, content)
    assert (first.model, second.model) == ("encoder", "other")
    assert first.repositories == (Path("/models"),)
    assert first.output == Path("results/encoder")
    assert first.mode == BRUTE
    assert first.values == {
        "max_batch_size": (6, 8),
        "queue_delay": (200, 300),
        "dynamic_batching.preferred_batch_size": ([1], [2, 3]),
        "instance_group": (
            [{"kind": "KIND_CPU", "count": 1}],
            [{"kind": "KIND_CPU", "count": 2}],
        ),
        "parameter.threads": ("1", "2"),
    }
    assert [each.label for each in first.loads.all] == [
        *(f"concurrency {count}" for count in (2, 6, 10)),
        *(f"concurrency {count}, 2 rows" for count in (2, 6, 10)),
    ]
    assert [(each.name, each.weight) for each in first.aims.objectives] == [
        ("throughput", 3.0),
        ("p99", -1.0),
    ]
    limits = {each.figure: each.largest for each in first.aims.limits}
    assert limits == {"latency_ms.p99": 100.0, "gpu_memory_bytes": 200.0 * (1 << 20)}
    assert first.serving.flags == ("--log-verbose=1", "--strict-readiness=true")
    assert first.serving.environment == {"LD_PRELOAD": "/op.so"}
    assert first.perf[-6:] == ("-i", "http", "--shape", "IN:4", "--shape", "OTHER:2")
    assert [each.label for each in second.loads.all] == ["concurrency 1"]


@pytest.mark.contract("MA-05")
def test_a_manual_search_without_values_measures_the_model_as_it_is(tmp_path: Path) -> None:
    manual = "profile_models: encoder\nmodel_repository: /models\nrun_config_search_disable: true\n"
    (plan,) = _plans(tmp_path, manual)
    assert plan.budget.variants == 1
    swept = "bls_composing_models: {part: {model_config_parameters: {max_batch_size: [1, 2]}}}\n"
    (plan,) = _plans(tmp_path, manual + swept)
    assert plan.budget.variants != 1


@pytest.mark.contract("MA-04", "MA-07")
def test_a_file_of_an_automatic_search(tmp_path: Path) -> None:
    content = """\
model_repository: /models
profile_models: encoder, other
latency_budget: 20
min_throughput: 5
run_config_search_mode: optuna
run_config_search_max_instance_count: 2
run_config_search_min_model_batch_size: 4
run_config_search_max_model_batch_size: 16
run_config_search_max_concurrency: 8
optuna_max_trials: 50
optuna_early_exit_threshold: 7
"""
    plan, _ = _plans(tmp_path, content)
    assert plan.mode == OPTUNA
    assert plan.values == {"instances": (1, 2), "max_batch_size": (4, 8, 16)}
    assert [each.point.concurrency for each in plan.loads.all] == [1, 2, 4, 8]
    assert plan.loads.sweep
    assert plan.trials == Trials(0.0, 0.0, 20, 50, 7)
    bounds = [(each.figure, each.least, each.largest) for each in plan.aims.limits]
    assert ("latency_ms.p99", None, 20.0) in bounds
    assert ("inferences_per_second", 5.0, None) in bounds


@pytest.mark.contract("MA-02", "MA-06")
def test_composing_models_of_a_file(tmp_path: Path) -> None:
    content = """\
model_repository: /models
num_configs_per_model: 5
profile_models: caller
bls_composing_models: first, second
ensemble_composing_models:
  third:
    model_config_parameters:
      max_batch_size: [2, 4]
      instance_group: [{kind: KIND_CPU, count: [1, 2]}]
"""
    (plan,) = _plans(tmp_path, content)
    assert list(dict.fromkeys(plan.parts)) == ["first", "second", "third"]
    assert plan.values == {
        "third/max_batch_size": (2, 4),
        "third/instance_group": (
            [{"kind": "KIND_CPU", "count": 1}],
            [{"kind": "KIND_CPU", "count": 2}],
        ),
    }
    assert plan.top == 5


@pytest.mark.contract("MA-08")
def test_a_file_of_models_at_the_same_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = """\
model_repository: /models
run_config_profile_models_concurrently_enable: true
profile_models:
  a:
    weighting: 2
    model_config_parameters: {max_batch_size: [1, 2]}
  b:
    model_config_parameters: {max_batch_size: [4, 8]}
    perf_analyzer_flags: {shape: "IN:4"}
"""
    (plan,) = _plans(tmp_path, content)
    assert plan.name == "a+b"
    assert plan.values == {"max_batch_size": (1, 2), "b/max_batch_size": (4, 8)}
    assert plan.aims.weights == {"a": 2.0, "b": 1.0}
    assert [each.perf[-2:] == ("--shape", "IN:4") for each in plan.together] == [False, True]
    assert plan.output.name == "a+b"
    assert len(_plans(tmp_path, content, "a")) == 1
    apart = _plans(tmp_path, content.replace("enable: true", "enable: false"))
    assert [each.model for each in apart] == ["a", "b"]
    assert "without effect here: weighting" in capsys.readouterr().err


@pytest.mark.contract("MA-12")
def test_a_file_for_a_server_that_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = """\
profile_models: a
triton_launch_mode: remote
triton_http_endpoint: there:9000
triton_metrics_url: http://there:9002/metrics
triton_server_flags: {log_verbose: 1}
"""
    (plan,) = _plans(tmp_path, content)
    assert plan.remote is not None
    assert plan.remote.grpc.authority == "localhost:8001"
    assert plan.remote.http.authority == "there:9000"
    assert (plan.remote.metrics.host, plan.remote.metrics.port) == ("there", 9002)
    assert plan.serving.flags == ()
    assert "without effect here: triton_server_flags" in capsys.readouterr().err
    (plan,) = _plans(tmp_path, content.replace("remote", "local"), "--model-repository", "/m")
    assert plan.remote is None
    names = "triton_http_endpoint, triton_metrics_url"
    assert f"without effect here: {names}" in capsys.readouterr().err


@pytest.mark.contract("MA-05")
def test_request_rates_of_a_manual_search_are_rates(tmp_path: Path) -> None:
    content = "model_repository: /m\nprofile_models: {a: {parameters: {request_rate: [10, 20]}}}\n"
    (plan,) = _plans(tmp_path, content)
    assert [each.point.rate for each in plan.loads.all] == [10, 20]


@pytest.mark.contract("MA-04")
@pytest.mark.parametrize(
    ("asked", "instances", "batches"),
    [("max_instance_count: 3", (1, 2, 3), 128), ("max_model_batch_size: 8", (1, 2, 3, 4, 5), 8)],
)
def test_bounds_that_a_file_does_not_name_are_those_of_model_analyzer(
    tmp_path: Path, asked: str, instances: tuple[int, ...], batches: int
) -> None:
    content = f"model_repository: /m\nprofile_models: a\nrun_config_search_{asked}\n"
    (plan,) = _plans(tmp_path, content)
    assert plan.values["instances"] == instances
    assert plan.values["max_batch_size"] == tuple(1 << n for n in range(batches.bit_length()))


@pytest.mark.contract("MA-04")
@pytest.mark.parametrize(
    ("asked", "loads"),
    [("min_concurrency: 4", range(2, 11)), ("max_concurrency: 2", range(2))],
)
def test_concurrencies_that_a_file_does_not_name_go_from_1_to_1024(
    tmp_path: Path, asked: str, loads: range
) -> None:
    content = f"model_repository: /m\nprofile_models: a\nrun_config_search_{asked}\n"
    (plan,) = _plans(tmp_path, content)
    assert [each.point.concurrency for each in plan.loads.all] == [1 << n for n in loads]


@pytest.mark.contract("MA-04")
def test_request_rates_go_from_16_to_8192(tmp_path: Path) -> None:
    content = "model_repository: /m\nprofile_models: a\nrequest_rate_search_enable: true\n"
    (plan,) = _plans(tmp_path, content)
    assert [each.point.rate for each in plan.loads.all] == [1 << n for n in range(4, 14)]


def test_request_rates_are_searched_in_powers_of_two(tmp_path: Path) -> None:
    content = "model_repository: /m\nprofile_models: a\nrun_config_search_max_request_rate: 64\n"
    (plan,) = _plans(tmp_path, content)
    assert [each.point.rate for each in plan.loads.all] == [16, 32, 64]


def test_the_command_line_counts_more_than_the_file(tmp_path: Path) -> None:
    content = """\
model_repository: /m
concurrency: [1, 2]
profile_models:
  - a: {constraints: {perf_latency_p99: {max: 100}}}
  - b
"""
    words = ["a", "--rate", "5", "--max-p99", "7ms", "--mode", "quick"]
    (plan,) = _plans(tmp_path, content, *words)
    assert plan.model == "a"
    assert [each.point.rate for each in plan.loads.all] == [5.0]
    assert [each.largest for each in plan.aims.limits] == [7.0]


def test_keys_without_effect_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = """\
model_repository: /m
gpus: all
perf_analyzer_flags: {percentile: 95, streaming: true}
profile_models: {a: {cpu_only: true}}
"""
    (plan,) = _plans(tmp_path, content)
    assert plan.perf[-1] == "--streaming"
    told = capsys.readouterr().err
    names = "gpus, perf_analyzer_flags.percentile, profile_models.a.cpu_only"
    assert f"without effect here: {names}" in told


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("profile_model: a", "unknown key 'profile_model'; did you mean 'profile_models'?"),
        ("profile_models: {a: {parameter: 1}}", "unknown key 'profile_models.a.parameter'"),
        ("profile_models: {a: {parameters: {size: 1}}}", "profile_models.a.parameters.size'"),
        ("model_repository: m", "profile_models names no model"),
        ("- a", "not a mapping of keys"),
        ("a: [", "analyzer.yaml: while parsing"),
        ("profile_models: a\ntriton_launch_mode: docker", "starts a server itself (local)"),
        ("profile_models: a\nnum_configs_per_model: many", "num_configs_per_model is not a whole"),
        ("profile_models: a\nbls_composing_models: ''", "bls_composing_models names no model"),
        (
            "profile_models: a\nbls_composing_models: {b: {parameters: {}}}",
            "unknown key 'bls_composing_models.b.parameters'",
        ),
        (
            "profile_models: {a: {weighting: much}, b: }\n"
            "run_config_profile_models_concurrently_enable: true",
            "weighting of a is not a number above 0",
        ),
        (
            "profile_models: {a: {objectives: [perf_throughput]}, b: }\n"
            "run_config_profile_models_concurrently_enable: true",
            "measured together have the same objectives and constraints",
        ),
        ("profile_models: a\nobjectives: [gpu_utilization]", "'gpu_utilization' is not measured"),
        (
            "profile_models: a\nconstraints: {gpu_power: {max: 1}}",
            "constraints.gpu_power.max cannot be kept here",
        ),
        (
            "profile_models: {a: {model_config_parameters: {max_batch: 1}}}",
            "config.pbtxt has no field 'max_batch'; did you mean 'max_batch_size'?",
        ),
        (
            "profile_models: {a: {model_config_parameters: {dynamic_batching: {delay: 1}}}}",
            "no field 'dynamic_batching.delay'",
        ),
        ("profile_models: a\ntriton_server_flags: {grpc_port: 1}", "sets it itself"),
        ("profile_models: a\nconcurrency: many", "'many' is not one or more whole numbers"),
    ],
)
def test_what_is_wrong_is_refused_by_name(
    tmp_path: Path, content: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        _plans(tmp_path, content, "--model-repository", "/m")
    assert words in capsys.readouterr().err


def test_no_key_has_two_meanings() -> None:
    assert not set(GLOBAL) & set(WITHOUT_EFFECT)
    assert len(set(OF_A_MODEL)) == len(OF_A_MODEL)


def test_without_yaml_the_way_to_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    with pytest.raises(SystemExit):
        _plans(tmp_path, "profile_models: a")
    assert "pip install 'penstock-client[tune]'" in capsys.readouterr().err


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
_keys = st.sampled_from([*GLOBAL, *WITHOUT_EFFECT, "x"])


@given(st.dictionaries(_keys, _json, max_size=5))
def test_any_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(yaml.safe_dump(content))
    assert _models_of(path) != []


def _models_of(path: Path) -> list[str] | str:
    """The models of a file, or why it is refused."""
    try:
        return list(file.read_analysis(path).models)
    except TuneError as refused:
        return str(refused)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True))
def test_values_of_a_field_are_those_of_the_file(values: list[int]) -> None:
    assert list(dimensions({"max_batch_size": values}, "f")) == [("max_batch_size", values)]


@given(st.lists(st.text(max_size=6), min_size=1, max_size=4))
def test_any_text_goes_through_a_command_line(texts: list[str]) -> None:
    words = f"parameter.x={','.join(map(json.dumps, texts))}"
    assert named_values(words) == ("parameter.x", tuple(texts))
