"""Which code runs a model: an installed backend, or a `model.py` in the backend directory."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.core.backend import Backend, find_backend
from penstock.core.config import ModelConfig
from penstock.core.errors import ModelLoadError

DIRECTORY = "backend-directory"
"""The backend setting that says where backends made of a `model.py` lie."""

PYTHON_FILE = "model.py"
"""The runtime of models whose backend is such a file, which the Python backend runs (PY-43)."""

_PYTHON = "python"


@dataclass(frozen=True, slots=True)
class FoundBackend:
    """What runs a model: the class, the configuration that names its runtime, and its file."""

    backend: type[Backend]
    config: ModelConfig
    path: str

    def files(self) -> dict[str, str]:
        """The backends that this one takes, by name, with their files; what runs a file first."""
        named = {self.config.backend: self.path}
        based = self.config.runtime == PYTHON_FILE
        return {_PYTHON: _file_of(self.backend), **named} if based else named


def backend_of(config: ModelConfig, settings: Mapping[str, str]) -> FoundBackend:
    """What runs the model; raises `ModelLoadError` when nothing does. Reads the disk.

    A backend directory has the last word where it holds a `model.py` and no shared library of the
    backend, which would be the other server's build of what is installed here. A configuration
    with the runtime `model.py` asks for that file, whatever lies beside it.
    """
    if "/" in config.backend or config.backend in (".", ".."):  # a load request may say anything
        raise ModelLoadError(f"unable to find backend '{config.backend}': that is a path, no name")
    folder = Path(settings[DIRECTORY], config.backend) if settings.get(DIRECTORY) else None
    if config.runtime not in ("", PYTHON_FILE, _library(config.backend)):
        raise ModelLoadError(
            f"unable to find backend library '{config.runtime}' for model '{config.name}': Penstock"
            f" loads no shared libraries; a runtime is '{PYTHON_FILE}' in the backend directory"
        )
    if config.runtime == PYTHON_FILE or (not config.runtime and _is_python(folder, config.backend)):
        return _python_based(config, folder)
    try:
        backend = find_backend(config.backend)
    except ModelLoadError as error:
        raise ModelLoadError(f"{error.message}{_looked(folder, config.backend)}") from error
    return FoundBackend(backend, config, _file_of(backend))


def _is_python(folder: Path | None, name: str) -> bool:
    """Whether the backend directory has the backend as a file of Python."""
    if folder is None or name == _PYTHON or (folder / _library(name)).exists():
        return False
    return (folder / PYTHON_FILE).is_file()


def _python_based(config: ModelConfig, folder: Path | None) -> FoundBackend:
    if folder is None:
        raise ModelLoadError(
            f"model '{config.name}': runtime '{PYTHON_FILE}' needs --{DIRECTORY}, where backend"
            f" '{config.backend}' lies"
        )
    path = folder / PYTHON_FILE
    if not path.is_file():
        raise ModelLoadError(
            f"unable to find Python backend based backend library '{PYTHON_FILE}' for model"
            f" '{config.name}', searched: '{path}'"
        )
    return FoundBackend(find_backend(_PYTHON), replace(config, runtime=PYTHON_FILE), str(path))


def _looked(folder: Path | None, name: str) -> str:
    """What of the backend directory helps whoever misses a backend."""
    if folder is None:
        return ""
    library = folder / _library(name)
    if library.exists():
        return f"; '{library}' is a shared library, which Penstock does not load"
    return f"; there is no '{folder / PYTHON_FILE}' either"


def _library(name: str) -> str:
    return f"libtriton_{name}.so"


def _file_of(backend: type[Backend]) -> str:
    return getattr(sys.modules.get(backend.__module__), "__file__", None) or ""
