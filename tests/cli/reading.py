"""Settings parsed from a command line."""

from __future__ import annotations

from penstock.cli.arguments import parse_arguments
from penstock.settings import Settings

SERVED = 99
"""The exit status of a command that would have begun to serve."""


def settings_of(*arguments: str, environment: dict[str, str] | None = None) -> Settings:
    return parse_arguments(["--model-repository=r", *arguments], environment or {}, lambda _: None)
