"""The first error of an engine's processes, which are those of a made-up vLLM here."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from penstock_backends.vllm.start_failures import noted_failure

ENVS = "VLLM_WORKER_MULTIPROC_METHOD = 'spawn'"
CORE = """
import multiprocessing
from vllm.v1.executor.multiproc_executor import WorkerProc

class EngineCoreProc:
    def __init__(self, broken):
        worker = multiprocessing.get_context("spawn").Process(
            target=WorkerProc.worker_main, args=(broken == "worker",)
        )
        worker.start()
        worker.join()
        if broken:
            raise RuntimeError("see the root cause above")

    @staticmethod
    def run_engine_core(broken):
        EngineCoreProc(broken)
"""
EXECUTOR = """
class WorkerProc:
    def __init__(self, broken):
        if broken:
            raise ValueError("torn weights")

    @staticmethod
    def worker_main(broken):
        try:
            WorkerProc(broken)
        except ValueError:
            pass  # it is in the log
"""


@pytest.fixture
def core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The class whose function is run in the engine's process."""
    files = {"envs": ENVS, "v1/engine/core": CORE, "v1/executor/multiproc_executor": EXECUTOR}
    for name, text in files.items():
        path = tmp_path / "vllm" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield import_module("vllm.v1.engine.core").EngineCoreProc
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        del sys.modules[name]


def started(core: Any, broken: str) -> str:
    """What is noted of an engine that is started, and ends."""
    with noted_failure() as cause:
        engine = multiprocessing.get_context("spawn").Process(
            target=core.run_engine_core, args=(broken,)
        )
        engine.start()
        engine.join()
        return cause()


def test_workers_error_is_the_one_that_is_told(core: Any) -> None:
    """That of the engine follows from it."""
    assert started(core, "worker") == "ValueError: torn weights"


def test_engines_error_is_told(core: Any) -> None:
    assert started(core, "engine") == "RuntimeError: see the root cause above"


def test_engine_that_starts_leaves_nothing_behind(core: Any) -> None:
    path, own = list(sys.path), core.run_engine_core
    assert started(core, "") == ""
    assert (sys.path, core.run_engine_core) == (path, own)


def test_forked_processes_are_left_alone(core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vllm.envs.VLLM_WORKER_MULTIPROC_METHOD", "fork")
    own = core.run_engine_core
    with noted_failure() as cause:
        assert core.run_engine_core is own
    assert cause() == ""


def test_a_vllm_with_other_names_starts_as_it_is(core: Any) -> None:
    del core.run_engine_core
    with noted_failure() as cause:
        assert not hasattr(core, "run_engine_core")
    assert cause() == ""
