"""A one-shot process, and the programs that it leaves behind."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from harness.processes import processes_below, read_of
from harness.serving import alive, wait_until
from penstock.core.config import ModelConfig
from penstock.core.errors import InternalError
from penstock_backends.python.backend import PythonBackend
from penstock_backends.python.environment.guard import open_guard

# Starts a program in a session of its own; then ends as the test says.
_PARENT = """
import os
import subprocess
import time
from pathlib import Path


class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        daemon = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        told = Path(__file__).with_name("new")
        told.write_text(str(daemon.pid))
        told.rename(told.with_name("pid"))
        {ending}
        config.set_max_batch_size(3)
        return config
"""


def model(directory: Path, ending: str = "pass") -> Path:
    (directory / "model.py").write_text(_PARENT.format(ending=ending))
    return directory


async def complete(version_path: Path) -> ModelConfig:
    config = ModelConfig(name="m", backend="python")
    return await PythonBackend.complete_config(config, version_path, {})


async def ended(directory: Path) -> None:
    """Wait until the program that the model has started is gone."""
    pid = int((directory / "pid").read_text())
    await asyncio.to_thread(wait_until, lambda: not alive(pid))


@pytest.mark.slow
async def test_started_programs_end_with_the_call(tmp_path: Path) -> None:
    config = await complete(model(tmp_path))
    assert config.max_batch_size == 3
    await ended(tmp_path)


@pytest.mark.slow
async def test_started_programs_end_with_a_process_without_result(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match="completes its configuration exited with status 7"):
        await complete(model(tmp_path, "os._exit(7)"))
    await ended(tmp_path)


@pytest.mark.slow
async def test_started_programs_end_with_a_cancelled_call(tmp_path: Path) -> None:
    asking = asyncio.ensure_future(complete(model(tmp_path, "time.sleep(1000)")))
    await asyncio.to_thread(wait_until, (tmp_path / "pid").exists)
    asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled()
    await ended(tmp_path)


@pytest.mark.slow
async def test_calls_leave_no_process_and_no_file_open(tmp_path: Path) -> None:
    await complete(model(tmp_path))
    before = children(), len(os.listdir("/proc/self/fd"))
    await complete(model(tmp_path))
    assert (children(), len(os.listdir("/proc/self/fd"))) == before


def children() -> str:
    """The processes that this one has started and not waited for."""
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text()


async def test_the_guard_has_no_secrets_in_its_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ADMIN", "the secret of a restriction")
    others = set(processes_below(os.getpid()))
    async with open_guard():
        (guard,) = set(processes_below(os.getpid())) - others
        assert b"the secret" not in read_of(guard, "environ")
