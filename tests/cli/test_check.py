"""The command `penstock check`: its arguments, formats and exit statuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.signing import Signer
from models.checking.house import write_model
from models.checking.refused_rows import (
    FOREST,
    GENAI,
    IDENTITY,
    ONNX,
    VLLM,
    T,
    archive,
    network,
    parameters,
)
from penstock.cli import main

_FINE = f'name: "fine"\n{IDENTITY}'


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository `models` with a model that loads and one that does not; we are beside it."""
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "models", "fine", _FINE)
    write_model(tmp_path / "models", "wrong", 'backend: "identity"\nmax_batch: 4\n')
    return tmp_path / "models"


def _json(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, bool]:
    main(["check", "--format=json", *arguments])
    whole = json.loads(capsys.readouterr().out)
    return {model["name"]: model["loads"] for model in whole["models"]}


def test_a_repository_with_an_error_has_status_1(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "models"]) == 1
    text = capsys.readouterr().out
    assert "fine: will load, version 1" in text
    assert "models/wrong/config.pbtxt:2:1: error: " in text
    assert "2 models: 1 will load, 1 will not; 1 error, 0 warnings" in text


def test_models_are_chosen_by_name(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "models", "fine"]) == 0
    assert "wrong" not in capsys.readouterr().out
    assert _json(["models", "wrong"], capsys) == {"wrong": False}
    assert _json(["models", "--cores=1", "fine"], capsys) == {"fine": True}


def test_files_and_folders_of_models_are_taken_as_pre_commit_gives_them(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _json(["models/wrong/config.pbtxt"], capsys) == {"wrong": False}
    assert _json([str(repository / "fine")], capsys) == {"fine": True}
    (repository / "fine" / "1" / "notes").write_text("x")
    both = ["models/fine/1/notes", "models/wrong/config.pbtxt"]
    assert _json(both, capsys) == {"fine": True, "wrong": False}


def test_repositories_of_files_are_checked_apart(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_model(tmp_path / "staging", "fine", _FINE)
    both = ["models/fine/config.pbtxt", "staging/fine/config.pbtxt"]
    assert main(["check", *both]) == 0
    assert "2 models: 2 will load" in capsys.readouterr().out


def test_a_model_without_a_configuration_is_found_by_its_version(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_model(repository, "code", "", {"1/model.py": "class TritonPythonModel: 1"})
    assert _json(["models/code/1/model.py"], capsys) == {"code": True}
    assert _json(["models/code"], capsys) == {"code": True}


def test_a_configuration_of_another_name_is_read(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    custom = {"configs/mended.pbtxt": IDENTITY, "configs/other.pbtxt": "max_batch: 4"}
    write_model(repository, "wrong", "", custom)
    assert _json(["models/wrong/configs/mended.pbtxt"], capsys) == {"wrong": True}
    assert main(["check", "models/wrong/configs/other.pbtxt"]) == 1
    assert "models/wrong/configs/other.pbtxt:1:1: error: " in capsys.readouterr().out
    write_model(repository, "only", "", {"configs/one.pbtxt": "max_batch: 4"})
    assert _json(["models/only/configs/one.pbtxt"], capsys) == {"only": False}


def test_several_repositories_are_one(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_model(tmp_path / "more", "another", IDENTITY)
    assert _json(["models", "more"], capsys) == {"another": True, "fine": True, "wrong": False}


def test_warnings_count_with_strict(repository: Path) -> None:
    write_model(repository, "fine", f"{_FINE} max_batch_size: 4")
    assert main(["check", "models", "fine"]) == 0
    assert main(["check", "models", "fine", "--strict"]) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere"], "there is no repository 'nowhere'"),
        (["no/where"], "failed to stat file no/where"),
        (["s4://bucket"], "the scheme 's4' is not known"),
        (["models", "--backend-config=x"], "backend-config"),
    ],
)
def test_what_cannot_be_checked_has_status_2(
    repository: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert main(["check", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_options_of_serve_change_what_loads(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    custom = repository / "wrong" / "configs" / "mended.pbtxt"
    custom.parent.mkdir()
    custom.write_text(IDENTITY)
    assert _json(["models", "--model-config-name=mended"], capsys) == {"fine": True, "wrong": True}
    write_model(repository, "own", f'backend: "own" runtime: "model.py" {IDENTITY[20:]}')
    assert _json(["models", "own"], capsys) == {"own": False}
    (repository.parent / "backends" / "own").mkdir(parents=True)
    (repository.parent / "backends" / "own" / "model.py").write_text("class TritonPythonModel: 1")
    assert _json(["models", "own", "--backend-directory=backends"], capsys) == {"own": True}
    write_model(repository, "sparse", 'backend: "onnxruntime"', {"1/model.onnx": network()})
    assert _json(["models", "sparse"], capsys) == {"sparse": True}
    assert main(["check", "models", "sparse", "--disable-auto-complete-config"]) == 1
    text = capsys.readouterr().out
    assert "configuration expects 0 inputs, model provides 1: not declared: IN" in text


def test_models_must_be_signed_as_for_serve(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signer = Signer.create(repository.parent)
    key = f"--model-signature-key={signer.public}"
    assert _json(["models", "fine", key], capsys) == {"fine": False}
    signer.sign(repository / "fine")
    assert _json(["models", "fine", key], capsys) == {"fine": True}
    assert main(["check", "models", f"--model-signature-key={signer.private}x"]) == 2


def test_gpus_of_the_machine_that_is_meant(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    group = "instance_group [ { kind: KIND_GPU gpus: [ 1 ] } ]"
    write_model(repository, "gpu", f"{ONNX} {group}", {"1/model.onnx": network()})
    assert main(["check", "models", "gpu", "--strict"]) == 1
    assert main(["check", "models", "gpu", "--strict", "--gpus=2"]) == 0
    capsys.readouterr()
    assert _json(["models", "gpu", "--gpus=1"], capsys) == {"gpu": False}
    assert _json(["models", "gpu", "--cpu-only"], capsys) == {"gpu": True}


def test_cores_of_the_machine_that_is_meant(repository: Path) -> None:
    group = "instance_group [ { kind: KIND_CPU count: 3 } ]"
    write_model(repository, "fine", f"{_FINE} {group}")
    assert main(["check", "models", "fine", "--strict", "--cores=3"]) == 0
    assert main(["check", "models", "fine", "--strict", "--cores=2"]) == 1


def test_a_number_that_is_none_is_refused(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["check", "models", "--cores=many"])
    assert ended.value.code == 2
    assert "'many' is not a number" in capsys.readouterr().err


def test_the_hook_is_for_what_the_command_takes() -> None:
    yaml = pytest.importorskip("yaml")
    (hook,) = yaml.safe_load((Path(__file__).parents[2] / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "penstock check"
    assert hook["language"] == "python"


_ENGINES = ("onnxruntime", "openvino", "openvino_genai", "tokenizers", "torch", "treelite", "vllm")
_IMPORTED = f"""
import os, sys
os.fork = os.posix_spawn = None
import _posixsubprocess
_posixsubprocess.fork_exec = None
from penstock.cli import main
status = main(["check", "models"])
print(status, [name for name in {_ENGINES} if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.slow
def test_no_engine_is_imported_and_no_process_started(tmp_path: Path) -> None:
    root = tmp_path / "models"
    write_model(root, "onnx", ONNX, {"1/model.onnx": network()})
    write_model(root, "sparse", 'backend: "onnxruntime"', {"1/model.onnx": network()})
    write_model(root, "ir", 'backend: "openvino"', {"1/model.xml": "x"})
    write_model(root, "trees", FOREST + parameters(is_classifier="true"), {"1/xgboost.model": "x"})
    script = {"1/model.pt": archive("model/constants.pkl")}
    write_model(root, "script", f'platform: "pytorch_libtorch" {T}', script)
    write_model(root, "code", f'backend: "python" {T}', {"1/model.py": "raise SystemExit(9)"})
    write_model(root, "words", GENAI, {"1/openvino_model.xml": "", "1/tokenizer.json": "{}"})
    write_model(root, "llm", VLLM, {"1/model.json": '{"model": "x"}'})
    ran = subprocess.run(
        [sys.executable, "-c", _IMPORTED], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stderr.strip().endswith("1 []")
    assert "8 models: 7 will load, 1 will not" in ran.stdout  # the code has no model


@pytest.mark.parametrize("source", ["net.onnx", "layout", "alone"])
def test_a_model_outside_of_repositories_is_told_from_one(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("net.onnx", "layout/config.json", "alone/model.onnx"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert main(["check", f"./{source}"]) == 2
    assert f"write it into one: penstock import ./{source} DIR" in capsys.readouterr().err
