"""Models given as arguments: `[NAME=]FILE.py[:CLASS]`, or a file of an engine, `[NAME=]FILE`."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

from penstock.settings import ModelFile

TRITON_CLASS = "TritonPythonModel"
_NAME = r"(?:(?P<name>[\w.-]+)=)?"
_PYTHON = re.compile(_NAME + r"(?P<file>.+?\.py)(?::(?P<cls>\w+))?")
_OTHER = re.compile(_NAME + r"(?P<file>.+)")
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


class ModelFileError(Exception):
    """An argument that is not a model; the text says what to write instead."""


def model_file(argument: str) -> ModelFile:
    """The model that an argument names; a file of Python is read, and not run.

    Without a class such a file must hold exactly one. Without a name the model is called as the
    class, in snake case (`BertRanker` is `bert_ranker`), or a `TritonPythonModel` as its file.
    """
    found = _PYTHON.fullmatch(argument)
    if found is None:
        return _of_engine(argument)
    path = Path(found["file"]).absolute()
    tree = _parsed(path)
    cls = found["cls"] or _only_model(path, tree)
    if cls not in set(_names(tree)):
        raise ModelFileError(
            f"'{path}' has no class '{cls}'; its models: {', '.join(_models(tree)) or 'none'}"
        )
    return ModelFile(found["name"] or _model_name(path, cls), path, cls)


def is_repository(argument: str) -> bool:
    """Whether an argument is an address of a repository, or a folder that is no model itself."""
    return "://" in argument or (
        os.path.isdir(argument) and not os.path.exists(os.path.join(argument, "saved_model.pb"))
    )


def _of_engine(argument: str) -> ModelFile:
    from penstock.cli.engine_file import ENDINGS, EngineFileError, engine_file  # heavy

    found = _OTHER.fullmatch(argument)
    try:
        file = found and engine_file(found["name"] or "", Path(found["file"]).absolute())
    except EngineFileError as error:
        raise ModelFileError(str(error)) from error
    if file is None:
        raise ModelFileError(
            f"Unexpected argument: {argument}\nA directory of models is given as "
            "--model-repository=DIR, one model as FILE.py or FILE.py:CLASS, as a file of an engine "
            f"({ENDINGS}) or as the folder of a SavedModel."
        )
    return file


def _parsed(path: Path) -> ast.Module:
    if not path.is_file():
        raise ModelFileError(f"there is no file '{path}'")
    try:
        return ast.parse(path.read_bytes(), str(path))
    except (OSError, SyntaxError, ValueError) as error:
        raise ModelFileError(f"cannot read '{path}' as Python: {error}") from error


def _only_model(path: Path, tree: ast.Module) -> str:
    models = _models(tree)
    if len(models) == 1:
        return models[0]
    if models:
        choices = ", ".join(f"{path.name}:{name}" for name in models)
        raise ModelFileError(f"'{path}' has more than one model: say which, as one of {choices}")
    raise ModelFileError(
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
