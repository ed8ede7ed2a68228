"""Why a process of the engine could not start, which vLLM leaves to that process's log.

Its own error, in the process that waits, says no more than `See root cause above`. So the engine's
processes are begun by functions of this module, which note the first error. They have vLLM's
packages and not ours: there a copy of this file is the module, which imports nothing of ours.
"""

from __future__ import annotations

import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial, wraps
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_COPY = "penstock_vllm_start"
_LONGEST = 4096
"""Characters of an error; those of some hold whole configurations."""


@contextmanager
def noted_failure() -> Iterator[Callable[[], str]]:
    """Yields a function that returns the first error of an engine started meanwhile, else ''.

    Works where they are spawned, as they are unless the operator says otherwise.
    """
    with TemporaryDirectory(prefix="penstock-") as name:
        folder = Path(name)
        process = _engine_process()
        if process is not None:
            with _begun_here(process, folder):
                yield partial(_read, folder / "failure")
        else:
            yield str


def _engine_process() -> Any:
    """vLLM's class of that process; `None` where it is forked, and where a version has another."""
    with suppress(ImportError, AttributeError):
        process = import_module("vllm.v1.engine.core").EngineCoreProc
        spawned = import_module("vllm.envs").VLLM_WORKER_MULTIPROC_METHOD == "spawn"
        return process if spawned and callable(process.run_engine_core) else None
    return None


@contextmanager
def _begun_here(process: Any, folder: Path) -> Iterator[None]:
    """Have the engine's process run `run_engine_core` of a copy of this file."""
    shutil.copyfile(__file__, folder / f"{_COPY}.py")
    sys.path.append(str(folder))  # a spawned process has the path of the one that starts it
    own = process.run_engine_core
    begin = partial(import_module(_COPY).run_engine_core, str(folder / "failure"))
    process.run_engine_core = staticmethod(begin)
    try:
        yield
    finally:
        process.run_engine_core = staticmethod(own)
        sys.path.remove(str(folder))
        del sys.modules[_COPY]


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


# -- in the engine's processes ---------------------------------------------------------------------


def run_engine_core(path: str, *arguments: Any, **named: Any) -> None:
    """The function of the engine's process: vLLM's own, whose workers are begun by `run_worker`."""
    from vllm.v1.engine.core import EngineCoreProc

    _note_errors(EngineCoreProc, path)
    with suppress(ImportError, AttributeError):  # a version whose workers begin in another way
        workers = import_module("vllm.v1.executor.multiproc_executor").WorkerProc
        workers.worker_main = staticmethod(partial(run_worker, path))
    EngineCoreProc.run_engine_core(*arguments, **named)


def run_worker(path: str, *arguments: Any, **named: Any) -> None:
    """The function of a worker's process: vLLM's own, with its errors noted."""
    from vllm.v1.executor.multiproc_executor import WorkerProc

    _note_errors(WorkerProc, path)
    WorkerProc.worker_main(*arguments, **named)


def _note_errors(process: Any, path: str) -> None:
    """Have the errors of the class's constructor noted."""
    start = process.__init__

    @wraps(start)
    def noting(self: Any, *arguments: Any, **named: Any) -> None:
        try:
            start(self, *arguments, **named)
        except Exception as error:
            _note(error, path)
            raise

    process.__init__ = noting


def _note(error: Exception, path: str) -> None:
    """Write an error to a file that is not there yet: a worker's comes before the engine's."""
    text = "".join(traceback.format_exception_only(error)).strip()
    with suppress(OSError), open(path, "x", encoding="utf-8", errors="replace") as file:
        file.write(text[:_LONGEST])
