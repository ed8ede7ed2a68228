"""Fields of `Settings` by their path, such as `repository.paths`."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from penstock.settings import Settings


def default_value(path: str) -> Any:
    """The default of a field."""
    section, *names = path.split(".")
    value = next(_default_of(field) for field in fields(Settings) if field.name == section)
    for name in names:
        value = getattr(value, name)
    return value


def value_of(settings: Settings, path: str) -> Any:
    """The value of a field."""
    value: Any = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _default_of(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()
