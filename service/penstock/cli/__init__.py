"""The commands `penstock` and `tritonserver`: what they are is imported where Ctrl-C is heeded."""

from __future__ import annotations

from collections.abc import Sequence

INTERRUPTED = 130
"""The exit status after SIGINT, as shells have it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The `penstock` command; returns its exit status."""
    try:
        from penstock.cli.command_line import penstock

        return penstock(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED


def tritonserver(arguments: Sequence[str] | None = None) -> int:
    """`penstock serve` under the name that existing start scripts use."""
    try:
        from penstock.cli.command_line import as_tritonserver

        return as_tritonserver(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
