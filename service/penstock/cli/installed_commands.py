"""Commands that other packages bring, found by their entry points in the group `penstock.commands`.

Those of the package `penstock-client` are known by name, also where it is not installed.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Protocol

GROUP = "penstock.commands"
OF_CLIENT = (
    *("top", "perf", "tune"),
    *("infer", "generate", "embed", "models", "load", "unload", "release", "stats", "wait"),
)
"""The commands of the package `penstock-client`, in the order in which the help names them."""


class Command(Protocol):
    """A command that an entry point of the group names; `of_model`: it is given a model first."""

    @property
    def summary(self) -> str: ...
    @property
    def of_model(self) -> bool: ...
    def run(self, arguments: Sequence[str]) -> int: ...
    def parser(self) -> ArgumentParser: ...


def installed_command(name: str) -> Command | None:
    """The command of this name, if a package brings it."""
    for point in entry_points(group=GROUP, name=name):
        command: Command = point.load()
        return command
    return None


def installed_commands() -> Mapping[str, Command]:
    """All commands that packages bring, by name; those of our own package come first."""
    names = {point.name for point in entry_points(group=GROUP)}
    ordered = [*(name for name in OF_CLIENT if name in names), *sorted(names - {*OF_CLIENT})]
    return {name: command for name in ordered if (command := installed_command(name))}


def where_it_is(name: str) -> str:
    """How to get a command of the client package that is not installed."""
    return (
        f"penstock: '{name}' is one of the commands that ask a running server; they are in a"
        " package of their own: pip install penstock-client"
    )
