"""What `penstock check` says of the repositories that the demo writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.cli import main

pytest.importorskip("onnx")


@pytest.fixture
def examples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Triton's example repository, and that of more models, as `demo --examples` writes both."""
    assert main(["demo", "--examples", str(tmp_path)]) == 0
    capsys.readouterr()
    return [str(tmp_path / "model_repository"), str(tmp_path / "more_models")]


@pytest.mark.contract("R-36")
def test_tritons_example_repository_has_no_errors(
    examples: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", examples[0], "--format=json", "--cores=8"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["models"]) == 8
    assert all(model["loads"] and not model["not_known"] for model in report["models"])
    rules = {found["rule"] for model in report["models"] for found in model["findings"]}
    assert rules == {"no-dynamic-batching"}  # Triton's own say nothing of it, either


def test_an_ensemble_finds_its_models_in_the_other_repository(
    examples: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", examples[1]]) == 1
    assert "not available or ambiguous: inception_onnx" in capsys.readouterr().out
    assert main(["check", *examples]) == 0
