"""Models of Python files: `[NAME=]FILE.py[:CLASS]`. A file is read, and not run."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

from penstock.models.sources.draft import Draft, SourceError

TRITON_CLASS = "TritonPythonModel"
_PYTHON = re.compile(r"(?P<file>.+?\.py)(?::(?P<cls>\w+))?")
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def python_file(name: str, argument: str) -> Draft | None:
    """The model of a class in a file; `None` for what names no such file.

    Without a class the file must hold exactly one. Without a name the model is called as the class,
    in snake case (`BertRanker` is `bert_ranker`), or a `TritonPythonModel` as its file. Raises
    `SourceError`.
    """
    found = _PYTHON.fullmatch(argument)
    if found is None:
        return None
    path = Path(os.path.abspath(found["file"]))
    tree = _parsed(path)
    cls = found["cls"] or _only_model(path, tree)
    if cls not in set(_names(tree)):
        raise SourceError(
            f"'{path}' has no class '{cls}'; its models: {', '.join(_models(tree)) or 'none'}"
        )
    draft = Draft(name or _model_name(path, cls))
    draft.links = {path.name: path}
    draft.beside = {each.name: each for each in path.parent.iterdir() if _belongs(each)}
    draft.backend("python", "which runs classes of Python files")
    draft.filename(f"{path.name}:{cls}", "the file, and the class in it")
    return draft


def _belongs(entry: Path) -> bool:
    """Whether a model may need it: caches, hidden files and virtual environments are left out.

    So is a `config.pbtxt`, which belongs above the version: the server would warn of it.
    """
    if entry.name.startswith(".") or entry.name in ("__pycache__", "config.pbtxt"):
        return False
    return not os.path.exists(entry / "pyvenv.cfg")  # also where it may not be looked at


def _parsed(path: Path) -> ast.Module:
    if not path.is_file():
        raise SourceError(f"there is no file '{path}'")
    try:
        return ast.parse(path.read_bytes(), str(path))
    except (OSError, SyntaxError, ValueError) as error:
        raise SourceError(f"cannot read '{path}' as Python: {error}") from error


def _only_model(path: Path, tree: ast.Module) -> str:
    models = _models(tree)
    if len(models) == 1:
        return models[0]
    if models:
        choices = ", ".join(f"{path.name}:{name}" for name in models)
        raise SourceError(f"'{path}' has more than one model: say which, as one of {choices}")
    raise SourceError(
        f"'{path}' has no model: a class made from penstock.model.Model. One made from another "
        f"base is named with the file, as {path.name}:CLASS"
    )


def _models(tree: ast.Module) -> list[str]:
    """Classes that are visibly models, except base classes of others in the file."""
    bases = {
        statement.name: {ast.unparse(base).rpartition(".")[2] for base in statement.bases}
        for statement in tree.body
        if isinstance(statement, ast.ClassDef)
    }
    models = {TRITON_CLASS} & bases.keys()
    roots = _aliases(tree)
    for name, parents in bases.items():  # in the order of the file, as bases come first
        if parents & (roots | models):
            models.add(name)
    return [name for name in bases if name in models and not _is_base(name, bases)]


def _is_base(name: str, bases: dict[str, set[str]]) -> bool:
    return any(name in of for of in bases.values())


def _aliases(tree: ast.Module) -> set[str]:
    """The names under which the file knows `penstock.model.Model`."""
    imports = (s for s in tree.body if isinstance(s, ast.ImportFrom) and s.module)
    names = (a for s in imports if s.module == "penstock.model" for a in s.names)
    return {"Model", *(alias.asname or "" for alias in names if alias.name == "Model")} - {""}


def _names(tree: ast.Module) -> Iterator[str]:
    """Names that the file defines, imports or assigns, at any level."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _model_name(path: Path, cls: str) -> str:
    if cls != TRITON_CLASS:
        return _WORD_START.sub("_", cls).lower()
    if path.stem != "model":
        return path.stem
    folder = path.parent
    return folder.parent.name if folder.name.isdecimal() else folder.name
