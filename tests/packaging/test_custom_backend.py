"""The example of a backend in a package of its own, copied by a stranger who follows its page."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from harness.package_author import Author

_ROOT = Path(__file__).parents[2]
_EXAMPLE = _ROOT / "examples" / "custom_backend"
_README = (_EXAMPLE / "README.md").read_text("utf-8")
_INSTALL, _SERVE, _ASK = re.findall(r"^```console\n(.*?)```$", _README, re.MULTILINE | re.DOTALL)
(_PRINTED,) = re.findall(r"^```text\n(.*?)```$", _README, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def author(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Author:
    """A stranger who has installed a copy of the example."""
    folder = tmp_path_factory.mktemp("stranger") / "custom_backend"
    shutil.copytree(_EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__", "1"))
    author = Author(folder, environment)
    author.run(_INSTALL.splitlines()[0])
    return author


@pytest.mark.slow
def test_its_own_tests_pass(author: Author) -> None:
    assert "4 passed" in author.run(_INSTALL.splitlines()[1])


@pytest.mark.slow
@pytest.mark.contract("B-19")
def test_its_model_is_served_and_asked(author: Author, tmp_path: Path) -> None:
    make, serve = _SERVE.splitlines()
    author.run(make)
    ask = _ASK.strip().replace("python", sys.executable)  # which has tritonclient
    with author.serving(serve, tmp_path / "log") as ports:
        assert author.run(f"{ask} 127.0.0.1:{ports['grpc']}") == _PRINTED


def test_each_of_its_files_is_told_of() -> None:
    found = {
        str(file.relative_to(_EXAMPLE))
        for file in _EXAMPLE.rglob("*")
        if file.is_file() and not {"__pycache__", "1"} & set(file.parts)
    }
    assert found == {"README.md", *re.findall(r"^\| `([\w./]+)`", _README, re.MULTILINE)}


@pytest.mark.parametrize("name", ["penstock_linear.py", "test_penstock_linear.py"])
def test_the_page_on_tensor_engines_shows_it(name: str) -> None:
    page = (_ROOT / "docs" / "tensor-engines.md").read_text("utf-8")
    assert (_EXAMPLE / name).read_text("utf-8") in page
