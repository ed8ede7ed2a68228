"""The command `penstock top`: a live screen on a terminal, else one table or JSON object."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from types import FrameType

from rich.console import Console

from penstock_client.top.options import Options, parser, read_options
from penstock_client.top.report import WIDE, as_json, observe, print_table
from penstock_client.top.screen import Screen

__all__ = ["parser", "run"]

INTERRUPTED = 130
"""The exit status of a program that Ctrl-C ended."""


def run(arguments: Sequence[str]) -> int:
    """The exit status: 0, 1 if no endpoint answered a single reading or a model is not there,
    130 after Ctrl-C."""
    options = read_options(arguments)
    try:
        if options.once or options.json or not _on_terminal():
            return _report(options)
        return _live(options)
    except KeyboardInterrupt:
        return INTERRUPTED


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and not Console().is_dumb_terminal


def _report(options: Options) -> int:
    view = observe(options)
    if not view.begun:
        reasons = "; ".join(f"{name}: {why}" for name, why in view.problems.items())
        print(
            f"penstock top: no answer from {options.metrics} and {options.http}: {reasons}\n"
            "--url names the metrics endpoint of a running server, --http its HTTP endpoint.",
            file=sys.stderr,
        )
        return 1
    if missing := sorted({*options.models} - {model.key.name for model in view.models}):
        names = ", ".join(f"'{name}'" for name in missing)
        print(f"penstock top: the server has not loaded {names}", file=sys.stderr)
        return 1
    if options.json:
        print(as_json(view, options))
        return 0
    terminal = sys.stdout.isatty()
    print_table(view, options, Console(width=None if terminal else WIDE, highlight=False))
    return 0


def _live(options: Options) -> int:
    # The default would leave the terminal as it is drawn on.
    signal.signal(signal.SIGTERM, _end)
    Screen(options, Console(highlight=False)).run(sys.stdin.fileno())
    return 0


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)
