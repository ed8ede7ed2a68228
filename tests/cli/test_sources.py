"""Models and repositories given as arguments of `penstock serve`."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.reading import SERVED
from penstock import cli
from penstock.settings import Settings

DOUBLE = "from penstock.model import Model\nclass Double(Model): ...\n"


@pytest.fixture
def double(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(DOUBLE)
    return path


def test_files_stand_beside_a_repository(double: Path, served: list[Settings]) -> None:
    assert cli.main(["serve", str(double), "--model-repository=r"]) == SERVED
    assert served[0].repository.paths == ("r",)
    assert [file.name for file in served[0].repository.files] == ["double"]


def test_folders_and_addresses_are_repositories(tmp_path: Path, served: list[Settings]) -> None:
    address = "s3://bucket/models"
    assert cli.main(["serve", str(tmp_path), address, "--model-repository=r"]) == SERVED
    assert served[0].repository.paths == ("r", str(tmp_path), address)
    assert served[0].repository.files == ()


def test_two_models_need_two_names(double: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", str(double), str(double)]) == 1
    assert "two models are called 'double': name one, as NAME=" in capsys.readouterr().err


def test_tritonserver_takes_no_files(double: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.tritonserver([str(double)]) == 1
    assert capsys.readouterr().err.endswith(f"Unexpected argument: {double}\n")


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("s3a://bucket/x", "did you mean 's3://bucket/x'?"),
        ("as://account/-/m.onnx", "is no address: as://ACCOUNT/CONTAINER/PATH"),
    ],
)
def test_what_is_no_address_is_one_line(
    address: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["serve", address]) == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith(told)
