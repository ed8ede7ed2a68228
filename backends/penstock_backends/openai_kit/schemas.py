"""JSON schemas of requests, made fit for engines that know no references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock_backends.openai_kit.errors import refuse_field

_MOST_PARTS: Final = 20_000
_DEEPEST: Final = 64


def without_references(schema: Mapping[str, Any], field: str) -> dict[str, Any]:
    """The schema with each `$ref` into itself replaced by what it names.

    Raises `ApiError` for one that refers to itself, or that grows too large on the way.
    """
    resolver = _Resolver(schema, field)
    resolved = resolver.resolve(schema, ())
    return {name: value for name, value in resolved.items() if name not in ("$defs", "definitions")}


class _Resolver:
    """Replaces references, within a limit on the size of the result."""

    def __init__(self, root: Mapping[str, Any], field: str) -> None:
        self._root = root
        self._field = field
        self._parts = 0

    def resolve(self, given: Any, inside: tuple[str, ...], depth: int = 0) -> Any:
        """`given` without references; `inside` are the references that led to it."""
        self._parts += 1
        if self._parts > _MOST_PARTS or depth > _DEEPEST:
            refuse_field(self._field, f"the schema of '{self._field}' is too large", "schema")
        if isinstance(given, list):
            return [self.resolve(one, inside, depth + 1) for one in given]
        if not isinstance(given, Mapping):
            return given
        if isinstance(given.get("$ref"), str):
            return self._referred(given["$ref"], inside, depth)
        return {
            name: self.resolve(value, inside, depth + 1)
            for name, value in given.items()
            if name not in ("$defs", "definitions")
        }

    def _referred(self, reference: str, inside: tuple[str, ...], depth: int) -> Any:
        if reference in inside:
            refuse_field(
                self._field,
                f"the schema of '{self._field}' refers to itself by '{reference[:100]}', which "
                "this model's engine cannot follow",
                "schema",
            )
        found: Any = self._root
        for name in reference.removeprefix("#/").split("/"):
            name = name.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        if not reference.startswith("#/") or found is None:
            refuse_field(
                self._field,
                f"the schema of '{self._field}' refers to '{reference[:100]}', which is not in it",
                "schema",
            )
        return self.resolve(found, (*inside, reference), depth + 1)
