"""Runs the tests of folders `real` in an environment with vLLM, which has PyTorch as well."""

from __future__ import annotations

import faulthandler
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
BACKENDS = Path(__file__).parents[1]
REAL = ("pytorch/real", "vllm/real")
SOURCES = ("service", "backends", "tests")
OPTIONS = (
    "-q",
    "-rs",
    "-p",
    "no:cacheprovider",
    "-o",
    "filterwarnings=",  # vLLM and torch warn of themselves
    "-o",
    "faulthandler_timeout=0",
)
ENVIRONMENT = {
    # An engine with one device may have its model in the process of its core, as on a GPU: without
    # this, vLLM has another process for it on CPUs, which imports for ten seconds.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # vLLM would bind the models of all engines to the same core.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
}
"""What engines of tests have in their environment."""


@contextmanager
def engine_environment() -> Iterator[pytest.MonkeyPatch]:
    """`ENVIRONMENT` for the servers that are started meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield patch


# Importing it would take ten seconds.
_FIND = """
from importlib.util import find_spec
missing = [name for name in ("vllm", "pytest", "pytest_asyncio") if find_spec(name) is None]
print(*missing, sep=", ", end="")
"""


def missing() -> str | None:
    """Why the tests cannot run; `None` when they can."""
    if not PYTHON.exists():
        return f"no vLLM environment at {PYTHON}: make vllm"
    done = subprocess.run([PYTHON, "-c", _FIND], capture_output=True, text=True, check=True)
    return f"{PYTHON} does not have {done.stdout}" if done.stdout else None


@pytest.mark.time_limit(3600)  # on the busiest machine; each test has a limit of its own
def test_the_backends_work_with_the_real_engines() -> None:
    faulthandler.cancel_dump_traceback_later()  # the engine alone may take minutes to start
    if reason := missing():
        pytest.skip(reason)
    environment = {
        **os.environ,
        **ENVIRONMENT,
        "PYTHONPATH": os.pathsep.join(str(ROOT / source) for source in SOURCES),
        "PENSTOCK_TEST_VLLM": "1",
    }
    done = subprocess.Popen(
        [PYTHON, "-m", "pytest", *OPTIONS, *(BACKENDS / name for name in REAL)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = done.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(done.pid, signal.SIGKILL)  # engines that a run left which was cut off
    print(output[-20000:])
    assert done.returncode == 0
