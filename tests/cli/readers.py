"""Who reads a setting: found in the product's own code, by the names of fields and classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import penstock
import penstock_backends
import penstock_client
from cli.reading import settings_of
from penstock.cli.unsupported import UNSUPPORTED_OPTIONS

_OWN_ROOMS = ("cli", "in_process", "settings")
"""They carry the settings, or make them, and do nothing with them."""


@cache
def modules(*, whole: bool = False) -> dict[str, ast.Module]:
    """The product's modules but those rooms, by path, such as `rpc/server.py`; or all of them."""
    if not whole:
        everything = modules(whole=True).items()
        return {place: tree for place, tree in everything if place.split("/")[0] not in _OWN_ROOMS}
    found = {}
    packages = {penstock: "", penstock_backends: "backends/", penstock_client: "client/"}
    for package, prefix in packages.items():
        assert package.__file__ is not None
        root = Path(package.__file__).parent
        for path in sorted(root.rglob("*.py")):
            place = f"{prefix}{path.relative_to(root)}"
            if not place.startswith("protocol/"):  # generated
                found[place] = ast.parse(path.read_text())
    return found


def leaves(value: Any, path: str = "", classes: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every field that is not a section, by its path, with the classes that lead to it."""
    classes = (*classes, type(value).__name__)
    for field in fields(value):
        inner = getattr(value, field.name)
        if is_dataclass(inner):
            yield from leaves(inner, f"{path}{field.name}.", classes)
        else:
            yield path + field.name, classes


FIELDS = dict(leaves(settings_of()))

REFUSED = {row.field for row in UNSUPPORTED_OPTIONS}
METHODS = dict.fromkeys(
    (
        *("backends.directory", "backends.config", "backends.media_urls"),
        "backends.unsafe_models",
    ),
    "backends.options_for",
)
"""Fields that are read by a method of the settings, which is what others call."""

BY_SETTINGS = {"sagemaker.safe_ports": ("settings/__init__.py",)}
"""Fields that the settings themselves look at, which nobody else needs to."""


@cache
def readers(path: str) -> tuple[str, ...]:
    """The modules that read a field: by its section, or of a class of the settings."""
    if path in BY_SETTINGS:
        return BY_SETTINGS[path]
    classes = frozenset(FIELDS[path][1:])
    path = METHODS.get(path, path)
    section, _, name = path.rpartition(".")
    tail = f"{section.rpartition('.')[2]}.{name}" if section else f"settings.{name}"
    return tuple(
        place
        for place, (loads, imported) in _index().items()
        if any(
            classes & imported or text == tail or text.endswith(f".{tail}")
            for text in loads.get(name, ())
        )
    )


@cache
def _index() -> dict[str, tuple[dict[str, list[str]], set[str]]]:
    """By module: the attributes that are read in it, as text by name, and the imported names."""
    index = {}
    for place, tree in modules().items():
        loads: dict[str, list[str]] = {}
        imported: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                loads.setdefault(node.attr, []).append(ast.unparse(node))
            elif isinstance(node, ast.ImportFrom):
                imported.update(alias.name for alias in node.names)
        index[place] = loads, imported
    return index


# -- the environment -----------------------------------------------------------------------------

_ENVIRONMENTS = ("environ", "environment", "variables", "_variables")
"""Names of mappings of environment variables."""


@cache
def environment_reads() -> dict[tuple[str, str], str | None]:
    """Reads of environment variables, by module and text; the name, `None` if it is not constant.

    Writes and what is passed on as a whole are not among them.
    """
    found: dict[tuple[str, str], str | None] = {}
    for place, tree in modules(whole=True).items():
        constants = _constants(tree)
        for node in ast.walk(tree):
            name = _variable(node, own_get=place == "cli/tracing.py")
            if name is not None:
                known = name.value if isinstance(name, ast.Constant) else None
                if isinstance(name, ast.Name):
                    known = constants.get(name.id)
                found[place, ast.unparse(node)] = known if isinstance(known, str) else None
    return found


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Constants on top of a module, by name."""
    return {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _variable(node: ast.AST, *, own_get: bool) -> ast.expr | None:
    """The expression that names the variable which a node reads, if it reads one.

    With `own_get`, the module reads by a method `_get` of its own.
    """
    match node:
        case ast.Subscript(value=mapping, slice=name, ctx=ast.Load()) if _is_environment(mapping):
            return name
        case ast.Compare(left=name, ops=[ast.In() | ast.NotIn()], comparators=[mapping]) if (
            _is_environment(mapping)
        ):
            return name
        case ast.Call(func=ast.Attribute(value=mapping, attr="get" | "pop"), args=[name, *_]) if (
            _is_environment(mapping)
        ):
            return name
        case ast.Call(func=ast.Attribute(attr="getenv"), args=[name, *_]):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Name("self"), attr="_get"), args=[name]) if (
            own_get
        ):
            return name
    return None


def _is_environment(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in _ENVIRONMENTS
    return isinstance(node, ast.Name) and node.id in _ENVIRONMENTS
