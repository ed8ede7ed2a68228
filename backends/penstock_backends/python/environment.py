"""Which Python a model runs in: its own environment, where it brings one (contract PY-35)."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.core.config import ModelConfig
from penstock.core.errors import ModelLoadError

logger = logging.getLogger(__name__)

_PARAMETER = "EXECUTION_ENV_PATH"
_MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
_REQUIREMENTS = "requirements.txt"
_COMPLETE = ".complete"


def interpreter(config: ModelConfig, model_path: Path) -> str | None:
    """The model's own Python, made ready where needed; `None` when it brings none.

    `EXECUTION_ENV_PATH` names a directory or an archive made by conda-pack; otherwise a
    `requirements.txt` in the model's directory asks for an environment with these packages,
    which is made once and kept. Blocks, for minutes where packages are installed.
    """
    if (value := config.parameter(_PARAMETER)) is not None:
        return str(_given(value, model_path))
    requirements = model_path / _REQUIREMENTS
    if requirements.is_file():
        return str(_made(config.name, requirements))
    return None


def cache_directory() -> Path:
    """Where environments are kept: `PENSTOCK_CACHE`, or below the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("PENSTOCK_CACHE") or Path(base) / "penstock") / "environments"


def _given(value: str, model_path: Path) -> Path:
    if value.startswith(_MODEL_DIRECTORY):
        value = str(model_path) + value.removeprefix(_MODEL_DIRECTORY)
    path = Path(value)
    if path.is_dir():
        return _python_in(path)
    if not path.is_file():
        raise ModelLoadError(f"{_PARAMETER} '{value}' is neither a directory nor an archive")
    return _unpacked(path)


def _unpacked(archive: Path) -> Path:
    """The environment of an archive; unpacked once for each version of the file."""
    status = archive.stat()
    key = f"{archive.resolve()} {status.st_size} {status.st_mtime_ns}"
    target = cache_directory() / f"archive-{_digest(key)}"
    with _making(target) as new:
        if new is not None:
            logger.info("unpacking environment '%s'", archive)
            _extract(archive, new)
            if (new / "bin" / "conda-unpack").exists():
                _run(str(new / "bin" / "python"), str(new / "bin" / "conda-unpack"))
    return _python_in(target)


def _made(model: str, requirements: Path) -> Path:
    """The environment with the packages of a requirements file; installed once for each content."""
    text = requirements.read_text()
    target = cache_directory() / f"venv-{_digest(f'{sys.version} {text}')}"
    with _making(target) as new:
        if new is not None:
            logger.info("model '%s': creating its environment", model)
            _run(sys.executable, "-m", "venv", str(new))
            logger.info("model '%s': installing %s", model, requirements)
            python = str(new / "bin" / "python")
            pip = ("-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off")
            _run(python, *pip, "numpy", "-r", str(requirements))
            logger.info("model '%s': its environment is ready", model)
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


def _run(*command: str) -> None:
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
            logger.info("%s", last)
    if process.returncode:
        text = f"'{' '.join(command)}' failed with status {process.returncode}: {last}"
        raise ModelLoadError(text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
