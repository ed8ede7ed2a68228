"""Model processes of interpreters that know nothing of the server."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest

from harness.outcomes import raises_nothing
from hosting.puppets import Puppets
from penstock.hosting.parent.process import ProcessInstance
from penstock.hosting.worker import bootstrap


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has numpy and nothing else."""
    home = tmp_path_factory.mktemp("bare")
    venv.create(home, symlinks=True)
    (packages,) = (home / "lib").glob("python*/site-packages")
    installed = Path(np.__file__).parents[1]
    for name in ("numpy", "numpy.libs"):
        if (installed / name).exists():
            (packages / name).symlink_to(installed / name)
    return home / "bin" / "python"


@pytest.mark.slow
async def test_backend_runs_where_the_server_is_not_installed(
    puppets: Puppets, bare_python: Path
) -> None:
    instance = await puppets.start(python=str(bare_python))
    assert await puppets.report(instance, "python") == str(bare_python.parents[1])


@pytest.mark.slow
async def test_nothing_of_the_servers_environment_comes_along(
    puppets: Puppets, bare_python: Path
) -> None:
    instance = await puppets.start(python=str(bare_python))
    wanted = ("penstock.core", "hosted", "grpc", "google", "uvloop", "hosting")
    assert [name for name in wanted if await can_import(puppets, instance, name)] == [
        "penstock.core",
        "hosted",
    ]


def test_named_package_is_taken_although_one_is_installed(tmp_path: Path) -> None:
    """Both ends of a link must be of one version, whatever the other environment has."""
    other = tmp_path / "json"
    other.mkdir()
    (other / "__init__.py").write_text("NAMED = True")
    offer = "from bootstrap import offer; offer(__import__('pathlib').Path(sys.argv[1]))"
    code = f"import sys; {offer}; import json; assert json.NAMED"
    home = str(Path(bootstrap.__file__).parent)
    with raises_nothing():
        subprocess.run([sys.executable, "-c", code, str(other)], cwd=home, check=True)


def test_working_directory_is_not_on_the_path(tmp_path: Path) -> None:
    """A file that happens to lie there must not stand in for a module of the same name."""
    (tmp_path / "asyncio.py").write_text("raise AssertionError")
    command = [sys.executable, "-P", bootstrap.__file__, "os:getpid", "0", "0", "0"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "TypeError" in ended.stderr  # from os.getpid(0, 0, 0), which was found and called


def test_process_has_its_own_group_in_the_session_of_its_parent() -> None:
    """Signals of the terminal are not for it, and processors are shared thread by thread."""
    command = [sys.executable, "-P", bootstrap.__file__, "os:getpid", "0", "0", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.read()  # until it has ended; its number is taken until `wait`
        assert os.getsid(process.pid) == os.getsid(0)
        assert os.getpgid(process.pid) == process.pid


async def can_import(puppets: Puppets, instance: ProcessInstance, name: str) -> bool:
    return bool((await puppets.ask(instance, "can_import", name=name)).parameters["found"])
