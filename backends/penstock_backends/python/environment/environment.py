"""Environment of a model's process: the interpreter that the model brings (contract PY-35)."""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.core.config import ModelConfig
from penstock.core.errors import InternalError, ModelLoadError
from penstock.system.archives import ArchiveError
from penstock.system.tar_archive import unpack_tar
from penstock_backends.python.environment.command import Log, own_terminal, run_command
from penstock_backends.python.environment.one_shot import OneShotCall, run_one_shot
from penstock_backends.python.environment.requirements import fingerprint

_PARAMETER = "EXECUTION_ENV_PATH"
_MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
_REQUIREMENTS = "requirements.txt"
_COMPLETE = ".complete"

_INTERPRETERS = re.compile(r"bin/python[\d.]*")
"""Links that may lead out of an archive: a virtual environment has the machine's interpreter."""


async def find_interpreter(
    config: ModelConfig, model_path: Path, backend_path: Path | None = None
) -> str | None:
    """The interpreter of the model's own environment, created if needed; `None` without one.

    `EXECUTION_ENV_PATH` names a directory or an archive made by conda-pack; otherwise a
    `requirements.txt` in the model's directory, or in that of its backend (`backend_path`), asks
    for an environment with these packages, which is created once and cached. Installing packages
    takes minutes; cancellation terminates the process that does it.
    """
    given = config.parameter(_PARAMETER) or None
    with_packages = [path for path in (model_path, backend_path) if path and _requires(path)]
    if given is None and not with_packages:
        return None
    directory = with_packages[0] if given is None else model_path
    # Absolute, as pip runs in the model's directory.
    argument = {"model": config.name, "given": given, "path": str(directory.absolute())}
    what = f"model '{config.name}': the process that prepares its environment"
    python: str = await run_one_shot(sys.executable, f"{__name__}:run", argument, what)
    return python


def check_environment(config: ModelConfig, model_path: Path) -> bool:
    """Whether the model brings an environment; raises `ModelLoadError` for one that is not there.

    Nothing is unpacked, installed or run.
    """
    given = config.parameter(_PARAMETER) or None
    if given is not None and (path := _given_path(given, model_path)).is_dir():
        find_python(path)
    return given is not None or _requires(model_path)


def run(descriptor: int, parent: int, _: int) -> None:
    """Entry point of the one-shot process that prepares an environment; `parent` is the server."""
    call = OneShotCall(descriptor, parent)
    argument, path = call.argument, Path(call.argument["path"])
    try:
        if argument["given"] is not None:
            python = _given_python(argument["given"], path, call.log)
        else:
            python = _venv_python(argument["model"], path / _REQUIREMENTS, call.log)
        call.send_result(str(python))
    except ModelLoadError as error:
        call.send_error(error.code, error.message)
    except OSError as error:
        call.send_error(InternalError.code, f"model '{argument['model']}': {error}")


def cache_directory() -> Path:
    """The cache of environments, absolute: in `PENSTOCK_CACHE`, or the user's cache directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get("PENSTOCK_CACHE") or Path(base) / "penstock")
    return cache.absolute() / "environments"


def _requires(path: Path) -> bool:
    return (path / _REQUIREMENTS).is_file()


def _given_python(value: str, model_path: Path, log: Log) -> Path:
    path = _given_path(value, model_path)
    return check_python(path) if path.is_dir() else _unpacked_python(path, log)


def _given_path(value: str, model_path: Path) -> Path:
    """The directory or archive of an environment; raises `ModelLoadError` where it is neither."""
    if value.startswith(_MODEL_DIRECTORY):
        value = str(model_path) + value.removeprefix(_MODEL_DIRECTORY)
    path = Path(value).absolute()
    if not path.is_dir() and not path.is_file():
        raise ModelLoadError(f"{_PARAMETER} '{value}' is neither a directory nor an archive")
    return path


def _unpacked_python(archive: Path, log: Log) -> Path:
    """The interpreter of an archive, which is unpacked once for each version of the file."""
    status = archive.stat()
    key = f"{archive.resolve()} {status.st_size} {status.st_mtime_ns}"
    target = cache_directory() / f"archive-{_digest(key)}"
    with _creating(target) as new:
        if new is not None:
            log(f"unpacking environment '{archive}'")
            _extract(archive, new)
            python = find_python(new)
            if (new / "bin" / "conda-unpack").exists():
                run_command(log, str(python), str(new / "bin" / "conda-unpack"))
            check_python(new)
    return find_python(target)


def _venv_python(model: str, requirements: Path, log: Log) -> Path:
    """The interpreter of a venv with the required packages, created once for each fingerprint."""
    target = cache_directory() / f"venv-{_digest(f'{sys.version} {fingerprint(requirements)}')}"
    with _creating(target) as new:
        if new is not None:
            log(f"model '{model}': creating its environment")
            run_command(log, sys.executable, "-m", "venv", str(new))
            log(f"model '{model}': installing {requirements}")
            python = str(new / "bin" / "python")
            terminal = own_terminal()
            bar = "off" if terminal is None else "on"
            pip = ("-m", "pip", "install", "--disable-pip-version-check", f"--progress-bar={bar}")
            packages = ("numpy", "-r", str(requirements))
            # In its directory, as paths in the file are relative to it.
            folder = requirements.parent
            run_command(log, python, *pip, *packages, where=folder, terminal=terminal)
            log(f"model '{model}': its environment is ready")
    return find_python(target)


@contextmanager
def _creating(target: Path) -> Iterator[Path | None]:
    """The directory to fill, or `None` if it is complete; a file lock excludes other processes."""
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
        unpack_tar(archive, target, may_leave=_INTERPRETERS)
    except ArchiveError as error:
        raise ModelLoadError(f"{_PARAMETER} '{archive}' cannot be unpacked: {error}") from error


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# -- the interpreter: where it is, and whether it is fit ------------------------------------------

_OLDEST = (3, 11)
_PROBE = "import sys; sys.stdout.write('\\n%d %d' % sys.version_info[:2]); import numpy"


def find_python(directory: Path) -> Path:
    """The interpreter of an environment; raises `ModelLoadError` if it has none."""
    python = directory / "bin" / "python"
    if not python.exists():
        raise ModelLoadError(f"the environment '{directory}' has no bin/python")
    return python


def check_python(directory: Path) -> Path:
    """As `find_python`; the interpreter runs, is new enough and has numpy."""
    python = find_python(directory)
    try:
        probe = subprocess.run(
            [str(python), "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise ModelLoadError(f"'{python}' cannot be run: {error}") from error
    # On the last line, as code that the environment runs at startup may print.
    version = tuple(map(int, probe.stdout.rpartition("\n")[2].split()))
    if version and version < _OLDEST:
        needed, found = (".".join(map(str, numbers)) for numbers in (_OLDEST, version))
        raise ModelLoadError(f"'{python}' is Python {found}; models need {needed} or newer")
    if probe.returncode:
        *_, why = ["it printed no error", *probe.stderr.strip().splitlines()]
        failed = "import numpy" if version else "be run"
        raise ModelLoadError(f"'{python}' cannot {failed}: {why}")
    return python
