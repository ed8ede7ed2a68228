"""Location of a model's code: with its version, or in a backend directory (contract PY-43)."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.errors import InternalError

_FILE = "model.py"

CLASS = "TritonPythonModel"
"""The class of a model in Triton's form."""

_MAYBE = re.compile(
    rb"%s|import \*|__dict__|\b(?:exec|eval|globals|setattr|vars)\(" % CLASS.encode()
)
"""Words of code that may have a model which cannot be seen."""


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
    def module_name(self) -> str:
        """The name of the code's module in its package."""
        return f"{self.package}.{self.path.stem}"

    def without_class(self) -> InternalError:
        """The error of code in which no class is a model, in Triton's words."""
        return InternalError(
            f"AttributeError: module '{self.module_name}' has no attribute '{CLASS}'"
        )

    def check(self) -> None:
        """Raise `InternalError` and `SyntaxError` for what is wrong to the eye; runs nothing."""
        source = self.existing_path.read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of the author's code are told when it runs
            tree = ast.parse(source, str(self.path))
            compile(source, str(self.path), "exec", dont_inherit=True)
        may_have_one = self.class_name or _MAYBE.search(source)
        if not may_have_one and not any(map(_may_be_model, ast.walk(tree))):
            raise self.without_class()

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


def _may_be_model(node: ast.AST) -> bool:
    """Whether a statement may bring a class made from `penstock.model.Model`."""
    if isinstance(node, ast.ClassDef):
        return bool(node.bases or node.keywords or node.decorator_list)
    return isinstance(node, ast.ImportFrom) and any(a.name[:1].isupper() for a in node.names)


def _is_taken(name: str) -> bool:
    """Whether an installed package, such as an engine, has the backend's name."""
    return "." in name or importlib.util.find_spec(name) is not None
