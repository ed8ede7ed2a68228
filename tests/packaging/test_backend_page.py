"""The page on backends, followed to the letter by a package of somebody else."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "backends.md").read_text()
FILES = dict(re.findall(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)```$", PAGE, re.MULTILINE | re.DOTALL))
INSTALL, SERVE, ASK = re.findall(r"^```console\n(.*?)```$", PAGE, re.MULTILINE | re.DOTALL)
(ANSWER,) = re.findall(r"^```json\n(.*?)```$", PAGE, re.MULTILINE | re.DOTALL)
UV = Path(sys.executable).with_name("uv")
_LISTENING = re.compile(r"Started HTTPService at \S+:(\d+)")


@dataclass(frozen=True)
class Author:
    """Somebody with an environment of their own, in a folder with the files of the page."""

    folder: Path
    environment: Path

    @property
    def variables(self) -> dict[str, str]:
        """Those of a shell where the environment is activated."""
        foreign = ("PYTHON", "PYTEST_", "PENSTOCK_", "COV_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        path = f"{self.environment / 'bin'}:{kept.get('PATH', '')}"
        return {**kept, "VIRTUAL_ENV": str(self.environment), "PATH": path}

    def run(self, commands: str) -> str:
        """What a shell prints that ends with the first command that fails."""
        line = ["bash", "-ec", commands]
        ran = subprocess.run(
            line, cwd=self.folder, env=self.variables, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout


@pytest.fixture(scope="module")
def author(tmp_path_factory: pytest.TempPathFactory) -> Author:
    """An author whose environment has Penstock, as installed from its source."""
    home = tmp_path_factory.mktemp("author")
    _need_index(home / "downloads")
    author = Author(home / "words", home / "environment")
    for name, text in FILES.items():
        path = author.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    venv.create(author.environment, symlinks=True)
    # The same by ensurepip and pip takes four times as long.
    author.run(f"'{UV}' pip install --quiet pip '{ROOT}'")
    author.run(INSTALL.splitlines()[0])
    return author


def _need_index(folder: Path) -> None:
    asking = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", str(folder), "hatchling"]
    asked = subprocess.run(asking, capture_output=True, text=True, check=False)
    if asked.returncode:
        pytest.skip(f"no package index is reachable: {asked.stderr.strip().splitlines()[-1]}")


@pytest.fixture
def port(author: Author, tmp_path: Path) -> Iterator[int]:
    """The HTTP port of a server that was started with the page's line, on ports of its choice."""
    log = tmp_path / "log"
    free = "--http-port=0 --grpc-port=0 --metrics-port=0"
    line = f"exec {SERVE.strip()} {free}"
    with log.open("wb") as output:
        server = subprocess.Popen(
            ["bash", "-c", line],
            cwd=author.folder,
            env=author.variables,
            stdout=output,
            stderr=output,
        )
    try:
        yield _listening(server, log)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def _listening(server: subprocess.Popen[bytes], log: Path) -> int:
    while not (found := _LISTENING.search(log.read_text())):
        with pytest.raises(subprocess.TimeoutExpired):
            server.wait(0.1)
    return int(found[1])


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
