"""`Flag`, a row of the option table, and the functions that combine repeated options."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.cli import compound, values

Gather = Callable[[Any, Any], Any]
"""Combines the field's value so far with a new one."""


def last(_: Any, value: Any) -> Any:
    return value


def each(before: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    return (*before, value)


def all_of_each(before: tuple[Any, ...], value: tuple[Any, ...]) -> tuple[Any, ...]:
    return before + value


def once_each(before: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    return before if value in before else (*before, value)


def by_key(before: Mapping[Any, Any], value: tuple[Any, Any]) -> dict[Any, Any]:
    return {**before, value[0]: value[1]}


def by_attribute(before: Any, value: tuple[str, Any]) -> Any:
    return replace(before, **{value[0]: value[1]})


def by_name(before: Mapping[str, Mapping[str, str]], value: compound.Setting) -> dict[str, Any]:
    name, key, setting = value
    return {**before, name: {**before.get(name, {}), key: setting}}


@dataclass(frozen=True, slots=True)
class Flag:
    """One option. `field` is the path in `Settings`, empty where `cli.arguments` decides it."""

    name: str
    argument: str
    parse: values.Parser
    field: str
    help: str
    gather: Gather = last
    warning: str = ""

    @property
    def takes_value(self) -> bool:
        return bool(self.argument)


@dataclass(frozen=True, slots=True)
class Group:
    title: str
    flags: tuple[Flag, ...]


def text(name: str, field: str, help: str, parse: values.Parser = values.text) -> Flag:
    return Flag(name, "string", parse, field, help)


def boolean(name: str, field: str, help: str) -> Flag:
    return Flag(name, "boolean", values.boolean, field, help)


def switch(name: str, field: str, help: str) -> Flag:
    """An option without a value."""
    return Flag(name, "", values.given, field, help)


def integer(name: str, field: str, help: str, parse: values.Parser = values.integer) -> Flag:
    return Flag(name, "integer", parse, field, help)


def decimal(name: str, field: str, help: str) -> Flag:
    return Flag(name, "float", values.decimal, field, help)
