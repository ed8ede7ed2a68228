"""The command line, alone and over a file of Model Analyzer."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_client.tune.reading import read_plans


def test_a_zero_on_the_command_line_is_a_value(tmp_path: Path) -> None:
    path = tmp_path / "analyzer.yaml"
    path.write_text("model_repository: /models\nprofile_models: m\n")
    (plan,) = read_plans(["-f", str(path), "--warmup", "0"])
    assert "--warmup=0" in plan.perf


def test_a_model_of_less_than_a_request_in_ten_seconds_has_limits_too() -> None:
    (plan,) = read_plans(["m", "--model-repository", ".", "--min-throughput", "0.05"])
    assert [limit.least for limit in plan.aims.limits] == [0.05]


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "x"])
def test_what_is_no_rate_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_plans(["m", "--model-repository", ".", f"--min-throughput={text}"])
    assert f"'{text}' is not a number above 0" in capsys.readouterr().err


def test_a_date_in_a_file_is_a_value_that_no_field_takes(tmp_path: Path) -> None:
    path = tmp_path / "analyzer.yaml"
    path.write_text(
        "model_repository: /models\n"
        "profile_models: {m: {model_config_parameters: {max_batch_size: 2020-01-01}}}\n"
    )
    (plan,) = read_plans(["-f", str(path)])
    assert plan.values == {"max_batch_size": ("2020-01-01",)}


@pytest.mark.parametrize("option", ["-u", "--url", "--remote"])
def test_an_option_names_the_server(option: str) -> None:
    (plan,) = read_plans(["m", option, "gpu7"])
    assert plan.remote is not None
    assert plan.remote.grpc.authority == "gpu7:8001"


def test_the_environment_names_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "http://gpu7")
    (plan,) = read_plans(["m"])
    assert plan.remote is not None
    assert plan.remote.grpc.authority == "gpu7:8001"
    assert plan.remote.http.authority == "gpu7:8000"
    assert str(plan.remote.metrics) == "gpu7:8002"


def test_an_environment_that_tells_no_port_of_grpc_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "http://gpu7:9000")
    with pytest.raises(SystemExit):
        read_plans(["m"])
    assert "name the server by --url HOST:PORT of its gRPC endpoint" in capsys.readouterr().err


def test_with_a_repository_servers_are_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URL", "gpu7")
    (plan,) = read_plans(["m", "--model-repository", "."])
    assert plan.remote is None
