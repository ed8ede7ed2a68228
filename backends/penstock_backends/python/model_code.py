"""Location of a model's code: with its version, or in a backend directory (contract PY-43)."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.errors import InternalError

_FILE = "model.py"


@dataclass(frozen=True, slots=True)
class ModelCode:
    """The code's file, the name of the package that it is imported in, and whether models share it.

    `class_name` is the model's class, where the configuration names one.
    """

    path: Path
    name: str
    shared: bool = False
    class_name: str = ""

    @property
    def existing_path(self) -> Path:
        """The code's file; raises `InternalError` where it is not there."""
        if not self.path.is_file():
            raise InternalError(f"model file '{self.path}' does not exist")
        return self.path

    @property
    def package(self) -> str:
        """The package's name, with a suffix if an installed package has the same."""
        return f"{self.name}_backend" if self.shared and _is_taken(self.name) else self.name

    def make_importable(self) -> None:
        """Put the directory of the file, and the one above it, on `sys.path`.

        The directory above holds versions, whose names are numbers, or backends, which may be
        named like a package that they use: then installed packages take precedence.
        """
        beside, above = str(self.path.parent), str(self.path.parent.parent)
        sys.path.insert(0, beside)
        sys.path.insert(len(sys.path) if self.shared else 0, above)


def locate_code(
    config: Mapping[str, Any], version_path: str, settings: Mapping[str, str]
) -> ModelCode:
    """The code of a model with this configuration, as JSON."""
    shared = shared_code(config.get("backend", ""), config.get("runtime", ""), settings)
    return shared or code_of_version(Path(version_path), config.get("default_model_filename", ""))


def code_of_version(version_path: Path, filename: str) -> ModelCode:
    """The code in a version's directory; `filename` may name its class too: `model.py:Double`."""
    file, _, class_name = filename.partition(":")
    path = version_path / (file or _FILE)
    return ModelCode(path, path.parent.name, class_name=class_name)


def shared_code(name: str, runtime: str, settings: Mapping[str, str]) -> ModelCode | None:
    """The code of backend `name` for all its models; `None` when each model brings its own."""
    if runtime != _FILE:
        return None
    path = Path(settings["backend-directory"], name, _FILE)
    return ModelCode(path, name, shared=True)


def _is_taken(name: str) -> bool:
    """Whether an installed package, such as an engine, has the backend's name."""
    return "." in name or importlib.util.find_spec(name) is not None
