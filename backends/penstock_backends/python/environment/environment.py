"""Which Python a model runs in: its own environment, where it brings one (contract PY-35)."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.core.config import ModelConfig
from penstock.core.errors import InternalError, ModelLoadError
from penstock_backends.python.environment.archive import extract
from penstock_backends.python.environment.interpreter import checked, python_in
from penstock_backends.python.environment.one_shot import Asked, ask
from penstock_backends.python.environment.requirements import meaning

_PARAMETER = "EXECUTION_ENV_PATH"
_MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
_REQUIREMENTS = "requirements.txt"
_COMPLETE = ".complete"

Log = Callable[[str], None]


async def interpreter(
    config: ModelConfig, model_path: Path, backend_path: Path | None = None
) -> str | None:
    """The model's own Python, made ready where needed; `None` when it brings none.

    `EXECUTION_ENV_PATH` names a directory or an archive made by conda-pack; otherwise a
    `requirements.txt` in the model's directory, or in that of its backend (`backend_path`), asks
    for an environment with these packages, which is made once and kept. It takes minutes where
    packages are installed; cancelled, the process that does it ends.
    """
    given = config.parameter(_PARAMETER) or None
    asking = [path for path in (model_path, backend_path) if path and _requires(path)]
    if given is None and not asking:
        return None
    place = asking[0] if given is None else model_path
    question = {"model": config.name, "given": given, "path": str(place)}
    what = f"model '{config.name}': the process that prepares its environment"
    python: str = await ask(sys.executable, f"{__name__}:run", question, what)
    return python


def run(descriptor: int, parent: int, _: int) -> None:
    """Prepare an environment in a process of its own; `parent` is the server's process."""
    asked = Asked(descriptor, parent)
    question, path = asked.question, Path(asked.question["path"])
    try:
        if question["given"] is not None:
            python = _given(question["given"], path, asked.log)
        else:
            python = _made(question["model"], path / _REQUIREMENTS, asked.log)
        asked.answer(str(python))
    except ModelLoadError as error:
        asked.refuse(error.code, error.message)
    except OSError as error:
        asked.refuse(InternalError.code, f"model '{question['model']}': {error}")


def cache_directory() -> Path:
    """Where environments are kept: `PENSTOCK_CACHE`, or below the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("PENSTOCK_CACHE") or Path(base) / "penstock") / "environments"


def _requires(path: Path) -> bool:
    return (path / _REQUIREMENTS).is_file()


def _given(value: str, model_path: Path, log: Log) -> Path:
    if value.startswith(_MODEL_DIRECTORY):
        value = str(model_path) + value.removeprefix(_MODEL_DIRECTORY)
    path = Path(value)
    if path.is_dir():
        return checked(path)
    if not path.is_file():
        raise ModelLoadError(f"{_PARAMETER} '{value}' is neither a directory nor an archive")
    return _unpacked(path, log)


def _unpacked(archive: Path, log: Log) -> Path:
    """The environment of an archive; unpacked once for each version of the file."""
    status = archive.stat()
    key = f"{archive.resolve()} {status.st_size} {status.st_mtime_ns}"
    target = cache_directory() / f"archive-{_digest(key)}"
    with _making(target) as new:
        if new is not None:
            log(f"unpacking environment '{archive}'")
            _extract(archive, new)
            python = python_in(new)
            if (new / "bin" / "conda-unpack").exists():
                _run(log, str(python), str(new / "bin" / "conda-unpack"))
            checked(new)
    return python_in(target)


def _made(model: str, requirements: Path, log: Log) -> Path:
    """The environment with the packages of a requirements file; installed once for each content."""
    target = cache_directory() / f"venv-{_digest(f'{sys.version} {meaning(requirements)}')}"
    with _making(target) as new:
        if new is not None:
            log(f"model '{model}': creating its environment")
            _run(log, sys.executable, "-m", "venv", str(new))
            log(f"model '{model}': installing {requirements}")
            python = str(new / "bin" / "python")
            pip = ("-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off")
            # Where it is, since paths in it are of the model's directory.
            _run(log, python, *pip, "numpy", "-r", str(requirements), where=requirements.parent)
            log(f"model '{model}': its environment is ready")
    return python_in(target)


@contextmanager
def _making(target: Path) -> Iterator[Path | None]:
    """The directory to fill, or `None` when it is complete; one process at a time."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f"{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (target / _COMPLETE).exists():
            yield None
            return
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        try:
            yield target
        except BaseException:
            shutil.rmtree(target, ignore_errors=True)
            raise
        (target / _COMPLETE).touch()


def _extract(archive: Path, target: Path) -> None:
    try:
        extract(archive, target)
    except ValueError as error:
        raise ModelLoadError(f"{_PARAMETER} '{archive}' cannot be unpacked: {error}") from error


def _run(log: Log, *command: str, where: Path | None = None) -> None:
    """Run a command, its lines in the log; raises with its last words when it fails."""
    last = ""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=where,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last = line.rstrip() or last
            log(last)
    if process.returncode:
        text = f"'{' '.join(command)}' failed with status {process.returncode}: {last}"
        raise ModelLoadError(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
