"""Starts of the real server with many command lines, and their output."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import Any

import pytest

from harness import recorded


@dataclass(frozen=True)
class Start:
    """One start of the real server: what it was given, what it said, and how it ended."""

    arguments: list[str]
    output: str
    end: str


def starts() -> list[Start]:
    text = recorded.log("cli_errors.txt")
    found = re.findall(r"^\$ tritonserver ?(.*)\n((?:.*\n)*?)=> (.*)$", text, re.MULTILINE)
    return [Start(shlex.split(line), output.strip(), end) for line, output, end in found]


# The real server gives up on these after its command line was accepted.
AT_START = re.compile(r"^E\d* |creating server: Internal|unable to find 'libtritoncache_")

# Ports that cannot exist, with which the real server starts and serves nothing.
IMPOSSIBLE = ("--http-port=70000", "--http-port=-1")

# Settings of metrics that mean nothing there, and are ignored.
MEANINGLESS = ("--metrics-config=nope=true", "--metrics-config=counter_latencies=nope")


def cases(refused: bool) -> list[Any]:
    chosen = [
        start
        for start in starts()
        if not {*IMPOSSIBLE, *MEANINGLESS} & set(start.arguments)
        and refused == (start.end == "exit status 1" and not AT_START.search(start.output))
    ]
    unknown = pytest.param(Start([], "", ""), marks=recorded.needs_answers)
    return [pytest.param(start, id=" ".join(start.arguments[-2:])) for start in chosen] or [unknown]
