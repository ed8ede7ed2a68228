"""Models given as Python files on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.models.config.pbtxt import parse_pbtxt
from penstock.models.sources.draft import SourceError, Wishes
from penstock.models.sources.recognise import model_of, named

DOUBLE = "from penstock.model import Model\nclass Double(Model): ...\n"


@pytest.fixture
def double(tmp_path: Path) -> Path:
    return _written(tmp_path / "model.py", DOUBLE)


def _written(path: Path, code: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(code)
    return path


def _found(argument: str) -> tuple[str, Path, str]:
    """The name of the model, its file and the class in it."""
    name, source = named(argument)
    draft = model_of(source, Wishes(), name)
    assert draft is not None
    file = draft.model_file(Wishes())
    config = parse_pbtxt(file.texts["config.pbtxt"].encode(), "config.pbtxt")
    assert config.backend == "python"
    name, _, cls = config.default_model_filename.rpartition(":")
    return file.name, file.links[f"1/{name}"], cls


def _refusal(argument: str) -> str:
    with pytest.raises(SourceError) as refused:
        model_of(argument, Wishes())
    return str(refused.value)


def test_only_model_of_a_file_needs_no_class(double: Path) -> None:
    assert _found(f"{double}") == ("double", double, "Double")


@pytest.mark.parametrize(
    ("cls", "name"),
    [("Double", "double"), ("BertNER", "bert_ner"), ("NERModel", "ner_model"), ("GPT2", "gpt2")],
)
def test_model_is_called_as_its_class_in_snake_case(tmp_path: Path, cls: str, name: str) -> None:
    path = _written(tmp_path / "model.py", f"class {cls}: ...")
    assert _found(f"{path}:{cls}")[0] == name


def test_model_may_be_given_a_name(double: Path) -> None:
    assert _found(f"twice-2={double}:Double") == ("twice-2", double, "Double")


@pytest.mark.parametrize(
    ("file", "name"),
    [("twice.py", "twice"), ("twice/model.py", "twice"), ("twice/3/model.py", "twice")],
)
def test_model_for_triton_is_called_as_its_file(tmp_path: Path, file: str, name: str) -> None:
    path = _written(tmp_path / file, "class TritonPythonModel: ...")
    assert _found(str(path)) == (name, path, "TritonPythonModel")


@pytest.mark.parametrize(
    "code",
    [
        "import penstock.model as m\nclass A(m.Model): ...",
        "from penstock.model import Model as Base\nclass A(Base): ...",
        "from penstock.model import Model\nclass B(Model): ...\nclass A(B): ...",
    ],
)
def test_model_is_found_by_its_bases(tmp_path: Path, code: str) -> None:
    assert _found(str(_written(tmp_path / "m.py", code)))[2] == "A"


def test_class_with_another_base_is_named(tmp_path: Path) -> None:
    path = _written(tmp_path / "m.py", "from base import Base\nclass A(Base): ...")
    assert _found(f"{path}:A")[2] == "A"
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
