"""Which Python a model runs in: its own environment, where it brings one (contract PY-35)."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.core.config import ModelConfig
from penstock.core.errors import InternalError, ModelLoadError
from penstock_backends.python.asking import Asked, ask

_PARAMETER = "EXECUTION_ENV_PATH"
_MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
_REQUIREMENTS = "requirements.txt"
_COMPLETE = ".complete"

Log = Callable[[str], None]


async def interpreter(config: ModelConfig, model_path: Path) -> str | None:
    """The model's own Python, made ready where needed; `None` when it brings none.

    `EXECUTION_ENV_PATH` names a directory or an archive made by conda-pack; otherwise a
    `requirements.txt` in the model's directory asks for an environment with these packages,
    which is made once and kept. It takes minutes where packages are installed; cancelled, the
    process that does it ends.
    """
    given = config.parameter(_PARAMETER)
    if given is None and not (model_path / _REQUIREMENTS).is_file():
        return None
    question = {"model": config.name, "given": given, "model_path": str(model_path)}
    what = f"model '{config.name}': the process that prepares its environment"
    python: str = await ask(sys.executable, f"{__name__}:run", question, what)
    return python


def run(descriptor: int, parent: int, _: int) -> None:
    """Prepare an environment in a process of its own; `parent` is the server's process."""
    asked = Asked(descriptor, parent)
    question, path = asked.question, Path(asked.question["model_path"])
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


def _given(value: str, model_path: Path, log: Log) -> Path:
    if value.startswith(_MODEL_DIRECTORY):
        value = str(model_path) + value.removeprefix(_MODEL_DIRECTORY)
    path = Path(value)
    if path.is_dir():
        return _python_in(path)
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
            if (new / "bin" / "conda-unpack").exists():
                _run(log, str(new / "bin" / "python"), str(new / "bin" / "conda-unpack"))
    return _python_in(target)


def _made(model: str, requirements: Path, log: Log) -> Path:
    """The environment with the packages of a requirements file; installed once for each content."""
    text = requirements.read_text()
    target = cache_directory() / f"venv-{_digest(f'{sys.version} {text}')}"
    with _making(target) as new:
        if new is not None:
            log(f"model '{model}': creating its environment")
            _run(log, sys.executable, "-m", "venv", str(new))
            log(f"model '{model}': installing {requirements}")
            python = str(new / "bin" / "python")
            pip = ("-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off")
            _run(log, python, *pip, "numpy", "-r", str(requirements))
            log(f"model '{model}': its environment is ready")
    return _python_in(target)


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
        yield target
        (target / _COMPLETE).touch()


def _extract(archive: Path, target: Path) -> None:
    try:
        with tarfile.open(archive) as contents:
            contents.extractall(target, filter="tar")
    except tarfile.TarError as error:
        raise ModelLoadError(f"{_PARAMETER} '{archive}' cannot be unpacked: {error}") from error


def _python_in(directory: Path) -> Path:
    python = directory / "bin" / "python"
    if not python.exists():
        raise ModelLoadError(f"the environment '{directory}' has no bin/python")
    return python


def _run(log: Log, *command: str) -> None:
    """Run a command, its lines in the log; raises with its last words when it fails."""
    last = ""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
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
