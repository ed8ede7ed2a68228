"""`penstock sagemaker`: the environment of the service, as options of the server."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from cli.reading import SERVED, settings_of
from harness.serving import start as start_server
from harness.serving import wait_until
from penstock import cli
from penstock.cli import sagemaker
from penstock.cli.sagemaker import MODEL_VARIABLE, SagemakerError, start
from penstock.settings import ModelControlMode, Settings
from penstock.settings.fields import value_of

_CONFIG = """
backend: "identity"
input [{ name: "IN" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [-1] }]
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """The folder of the service, with one model."""
    (tmp_path / "numbers" / "1").mkdir(parents=True)
    (tmp_path / "numbers" / "config.pbtxt").write_text(_CONFIG)
    return tmp_path


def _settings(models: Path, **variables: str) -> Settings:
    """On a machine of two GPUs."""
    known = {f"SAGEMAKER_{name}": value for name, value in variables.items()}
    return settings_of(*start(known, lambda: 2, models, models / "none").options)


@pytest.mark.contract("CLD-04")
def test_only_the_endpoint_of_the_service_is_open(models: Path) -> None:
    settings = _settings(models)
    enabled = settings.sagemaker.enabled, settings.http.enabled, settings.grpc.enabled
    assert (*enabled, settings.metrics.enabled) == (True, False, False, False)
    assert settings.repository.control_mode is ModelControlMode.EXPLICIT
    assert settings.repository.startup_models == ("numbers",)


@pytest.mark.contract("CLD-04", "EV-10")
@pytest.mark.parametrize(
    ("variable", "value", "field", "expected"),
    [
        ("BIND_TO_PORT", "9000", "sagemaker.port", 9000),
        ("SAFE_PORT_RANGE", "9000-9100", "sagemaker.safe_ports", (9000, 9100)),
        ("TRITON_THREAD_COUNT", "3", "sagemaker.thread_count", 3),
        ("TRITON_LOG_VERBOSE", "", "logging.verbose", 1),
        ("TRITON_LOG_VERBOSE", "0", "logging.verbose", 0),
        ("TRITON_LOG_INFO", "false", "logging.info", False),
        ("TRITON_LOG_WARNING", "false", "logging.warning", False),
        ("TRITON_LOG_ERROR", "false", "logging.error", False),
    ],
)
def test_variables_are_options(
    models: Path, variable: str, value: str, field: str, expected: object
) -> None:
    assert value_of(_settings(models, **{variable: value}), field) == expected


@pytest.mark.contract("CLD-04", "EV-10")
def test_variables_about_backends_and_gpus_are_options(models: Path) -> None:
    settings = _settings(models)
    assert settings.backends.options_for("python") == {
        "shm-default-byte-size": "16777216",
        "shm-growth-byte-size": "1048576",
    }
    settings = _settings(
        models,
        TRITON_SHM_DEFAULT_BYTE_SIZE="1",
        TRITON_SHM_GROWTH_BYTE_SIZE="2",
        TRITON_TENSORFLOW_VERSION="2",
        TRITON_BUFFER_MANAGER_THREAD_COUNT="4",
        TRITON_MODEL_LOAD_GPU_LIMIT="0.5",
    )
    assert settings.backends.options_for("python") == {
        "shm-default-byte-size": "1",
        "shm-growth-byte-size": "2",
    }
    assert settings.backends.options_for("tensorflow") == {"version": "2"}
    assert settings.devices.load_limits == {0: 0.5, 1: 0.5}


@pytest.mark.contract("CLD-04", "EV-10", "R-09")
@pytest.mark.parametrize(("value", "expected"), [("", True), ("false", True), ("true", False)])
def test_models_of_two_folders_may_have_one_name(models: Path, value: str, expected: bool) -> None:
    settings = _settings(models, TRITON_DISABLE_MODEL_NAMESPACING=value)
    assert settings.repository.namespacing is expected


@pytest.mark.contract("CLD-04", "EV-10")
def test_models_of_an_endpoint_of_many_come_later(tmp_path: Path) -> None:
    """Their repository is an empty folder, which is made."""
    chosen = start({"SAGEMAKER_MULTI_MODEL": "true"}, lambda: 0, tmp_path / "no", tmp_path / "new")
    assert chosen.model == ""
    assert f"--model-repository={tmp_path / 'new'}" in chosen.options
    assert not any("--load-model" in option for option in chosen.options)
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.contract("CLD-04")
@pytest.mark.parametrize("names", [["a", "b"], ["b"]])
def test_model_may_be_named(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).mkdir()
    chosen = start({MODEL_VARIABLE: "b"}, lambda: 0, tmp_path)
    assert (chosen.model, chosen.options[-1]) == ("b", "--load-model=b")


@pytest.mark.parametrize(
    ("names", "named", "text"),
    [
        ([], "", "No model found"),
        (["a", "b"], "", "More than 1 model directory found(.|\\n)*: a b$"),
        (["a"], "b", "DEFAULT_MODEL_NAME b does not exist"),
        (["config.pbtxt"], "", "Incorrect directory structure"),
    ],
)
def test_folder_without_one_model_is_refused(
    tmp_path: Path, names: list[str], named: str, text: str
) -> None:
    for name in names:
        path = tmp_path / name
        path.touch() if path.suffix else path.mkdir()
    with pytest.raises(SagemakerError, match=text):
        start({MODEL_VARIABLE: named}, lambda: 0, tmp_path)


def test_command_begins_to_serve_with_further_options(
    served: list[Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sagemaker, "start", partial(start, no_models=tmp_path))
    monkeypatch.setenv("SAGEMAKER_MULTI_MODEL", "true")
    assert cli.main(["sagemaker", "--sagemaker-port=7"]) == SERVED
    assert served[0].sagemaker.port == 7


def test_command_tells_what_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sagemaker, "start", partial(start, models=tmp_path))
    monkeypatch.delenv("SAGEMAKER_MULTI_MODEL", raising=False)
    assert cli.main(["sagemaker"]) == 1
    assert capsys.readouterr().err == "ERROR: No model found in model repository\n"


@pytest.mark.slow
@pytest.mark.contract("CLD-04")
def test_service_is_answered(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = start({"SAGEMAKER_BIND_TO_PORT": "0"}, lambda: 0, models)
    monkeypatch.setenv(MODEL_VARIABLE, chosen.model)
    item = {"name": "IN", "datatype": "FP32", "shape": [1], "data": [2.5]}
    with _serving(tmp_path / "log", chosen.options) as url:
        assert urllib.request.urlopen(f"{url}/ping").status == 200
        asked = json.dumps({"inputs": [item]}).encode()
        with urllib.request.urlopen(f"{url}/invocations", asked) as answer:
            assert json.load(answer)["outputs"][0]["data"] == [2.5]


@contextmanager
def _serving(log: Path, options: list[str]) -> Iterator[str]:
    process = start_server(None, log, *options)
    started = re.compile(r"Started Sagemaker HTTPService at \S+:(\d+)")
    try:
        wait_until(lambda: bool(started.search(log.read_text())))
        found = started.search(log.read_text())
        assert found is not None
        yield f"http://127.0.0.1:{found[1]}"
    finally:
        process.terminate()
        process.wait(40)
