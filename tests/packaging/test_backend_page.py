"""The page on backends, followed to the letter by a package of somebody else."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.package_author import Author

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "backends.md").read_text()
FILES = dict(re.findall(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)```$", PAGE, re.MULTILINE | re.DOTALL))
INSTALL, SERVE, ASK = re.findall(r"^```console\n(.*?)```$", PAGE, re.MULTILINE | re.DOTALL)
(ANSWER,) = re.findall(r"^```json\n(.*?)```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def author(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Author:
    """An author with the files of the page, whose package is installed."""
    author = Author(tmp_path_factory.mktemp("words"), environment)
    for name, text in FILES.items():
        path = author.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    author.run(INSTALL.splitlines()[0])
    return author


@pytest.fixture
def port(author: Author, tmp_path: Path) -> Iterator[int]:
    """The HTTP port of a server that was started with the page's line."""
    with author.serving(SERVE, tmp_path / "log") as ports:
        yield ports["http"]


def test_its_own_tests_pass(author: Author) -> None:
    assert "3 passed" in author.run(INSTALL.splitlines()[1])


def test_nothing_of_it_is_imported_from_the_source(author: Author) -> None:
    where = author.run("python -c 'import penstock.backend as b; print(b.__file__)'")
    assert where.startswith(str(author.environment))


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_model_of_it_answers(author: Author, port: int) -> None:
    answer = author.run(ASK.replace("localhost:8000", f"--silent 127.0.0.1:{port}"))
    assert json.loads(answer) == json.loads(ANSWER)


def test_the_backend_is_short() -> None:
    code = [line for line in FILES["penstock_words.py"].splitlines() if line.strip()]
    assert len(code) <= 35
