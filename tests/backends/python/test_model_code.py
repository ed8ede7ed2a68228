"""Location of a model's code, and the modules that it can import."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock_backends.python.model_code import ModelCode, code_of_version, shared_code


@pytest.mark.parametrize(("filename", "path"), [("", "model.py"), ("mine.py", "mine.py")])
def test_a_model_brings_its_code_with_its_version(tmp_path: Path, filename: str, path: str) -> None:
    code = code_of_version(tmp_path / "m" / "3", filename)
    assert code == ModelCode(tmp_path / "m" / "3" / path, "3")
    assert code.package == "3"


def test_code_may_lie_in_a_folder_of_the_version(tmp_path: Path) -> None:
    """As `default_model_filename` may say."""
    code = code_of_version(tmp_path / "3", "src/model.py")
    assert code.path == tmp_path / "3" / "src" / "model.py"
    assert code.package == "src"


def test_a_class_may_be_named_with_the_file(tmp_path: Path) -> None:
    code = code_of_version(tmp_path / "3", "model.py:Double")
    assert (code.path, code.class_name) == (tmp_path / "3" / "model.py", "Double")


@pytest.mark.contract("PY-43")
def test_models_of_a_backend_share_its_code(tmp_path: Path) -> None:
    settings = {"backend-directory": str(tmp_path)}
    code = shared_code("my_engine", "model.py", settings)
    assert code == ModelCode(tmp_path / "my_engine" / "model.py", "my_engine", shared=True)
    assert code.package == "my_engine"


@pytest.mark.parametrize("runtime", ["", "libtriton_python.so"])
def test_models_of_another_runtime_share_no_code(tmp_path: Path, runtime: str) -> None:
    assert shared_code("python", runtime, {"backend-directory": str(tmp_path)}) is None


@pytest.mark.parametrize("name", ["json", "my.engine"])
def test_a_backend_does_not_take_the_name_of_a_package(tmp_path: Path, name: str) -> None:
    """Of the one that it stands on, as a rule."""
    path = tmp_path / name / "model.py"
    assert ModelCode(path, name, shared=True).package == f"{name}_backend"
    assert ModelCode(path, name).package == name


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`sys.path` during the test."""
    monkeypatch.setattr(sys, "path", ["/standard", "/packages"])
    return sys.path


def test_directories_of_the_code_precede_packages(path: list[str]) -> None:
    code_of_version(Path("/models/m/1"), "").make_importable()
    assert path == ["/models/m", "/models/m/1", "/standard", "/packages"]


def test_packages_go_before_backends_of_their_names(path: list[str]) -> None:
    ModelCode(Path("/backends/vllm/model.py"), "vllm", shared=True).make_importable()
    assert path == ["/backends/vllm", "/standard", "/packages", "/backends"]
