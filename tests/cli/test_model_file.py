"""Models given as Python files on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.reading import SERVED
from penstock import cli
from penstock.cli.model_file import ModelFileError, model_file
from penstock.settings import ModelFile, Settings

DOUBLE = "from penstock.model import Model\nclass Double(Model): ...\n"


@pytest.fixture
def double(tmp_path: Path) -> Path:
    return _written(tmp_path / "model.py", DOUBLE)


def _written(path: Path, code: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    return path


def _refusal(argument: str) -> str:
    with pytest.raises(ModelFileError) as refused:
        model_file(argument)
    return str(refused.value)


def test_only_model_of_a_file_needs_no_class(double: Path) -> None:
    assert model_file(f"{double}") == ModelFile("double", double, "Double")


@pytest.mark.parametrize(
    ("cls", "name"),
    [("Double", "double"), ("BertNER", "bert_ner"), ("NERModel", "ner_model"), ("GPT2", "gpt2")],
)
def test_model_is_called_as_its_class_in_snake_case(tmp_path: Path, cls: str, name: str) -> None:
    path = _written(tmp_path / "model.py", f"class {cls}: ...")
    assert model_file(f"{path}:{cls}").name == name


def test_model_may_be_given_a_name(double: Path) -> None:
    assert model_file(f"twice-2={double}:Double") == ModelFile("twice-2", double, "Double")


@pytest.mark.parametrize(
    ("file", "name"),
    [("twice.py", "twice"), ("twice/model.py", "twice"), ("twice/3/model.py", "twice")],
)
def test_model_for_triton_is_called_as_its_file(tmp_path: Path, file: str, name: str) -> None:
    path = _written(tmp_path / file, "class TritonPythonModel: ...")
    assert model_file(str(path)) == ModelFile(name, path, "TritonPythonModel")


@pytest.mark.parametrize(
    "code",
    [
        "import penstock.model as m\nclass A(m.Model): ...",
        "from penstock.model import Model as Base\nclass A(Base): ...",
        "from penstock.model import Model\nclass B(Model): ...\nclass A(B): ...",
    ],
)
def test_model_is_found_by_its_bases(tmp_path: Path, code: str) -> None:
    assert model_file(str(_written(tmp_path / "m.py", code))).class_name == "A"


def test_class_with_another_base_is_named(tmp_path: Path) -> None:
    path = _written(tmp_path / "m.py", "from base import Base\nclass A(Base): ...")
    assert model_file(f"{path}:A").class_name == "A"
    assert "is named with the file, as m.py:CLASS" in _refusal(str(path))


def test_several_models_are_listed(tmp_path: Path) -> None:
    path = _written(tmp_path / "m.py", DOUBLE + "class Triple(Model): ...")
    assert _refusal(str(path)).endswith("say which, as one of m.py:Double, m.py:Triple")


def test_class_that_is_missing_is_refused(double: Path) -> None:
    assert _refusal(f"{double}:Triple") == f"'{double}' has no class 'Triple'; its models: Double"


def test_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    assert _refusal(f"{tmp_path}/m.py:A") == f"there is no file '{tmp_path}/m.py'"


def test_file_that_is_not_python_is_refused(tmp_path: Path) -> None:
    path = _written(tmp_path / "m.py", "class")
    assert _refusal(str(path)).startswith(f"cannot read '{path}' as Python: invalid syntax")


def test_argument_that_is_not_a_file_gets_advice() -> None:
    text = _refusal("models")
    assert text.startswith("Unexpected argument: models\n")
    assert "--model-repository=DIR" in text


# -- the command ---------------------------------------------------------------------------------


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
