"""The files that `penstock demo --examples` writes. Clients ask the models in `tests/clients`."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli import main
from penstock.demo import examples
from penstock.demo.colour_classifier import COLOURS
from penstock.models.config.pbtxt import read_pbtxt

pytest.importorskip("onnx")

_CONFIGURATIONS = sorted(examples.TEMPLATES.glob("*/*/config.pbtxt"))


def test_the_command_writes_both_repositories(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--examples", str(tmp_path)]) == 0
    written = {path.parent.relative_to(tmp_path) for path in tmp_path.glob("*/*/config.pbtxt")}
    assert written == {path.parent.relative_to(examples.TEMPLATES) for path in _CONFIGURATIONS}
    assert "simple_string: written" in capsys.readouterr().out
    assert main(["demo", "--examples", str(tmp_path)]) == 0
    assert "simple_string: already there" in capsys.readouterr().out


def test_a_model_of_somebody_else_is_not_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / examples.MODELS / "simple" / "config.pbtxt"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    assert main(["demo", "--examples", str(tmp_path)]) == 1
    assert "simple is not the demo's" in capsys.readouterr().err
    assert own.read_text() == "mine"


@pytest.mark.parametrize("file", _CONFIGURATIONS, ids=lambda file: file.parent.name)
def test_the_configuration_names_its_folder(file: Path) -> None:
    config = read_pbtxt(file)
    assert config.name == file.parent.name
    assert all(len(COLOURS) in each.dims for each in config.output if each.label_filename)
