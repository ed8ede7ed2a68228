"""Programs of load tools: where they are, in `.tools` or on the path, and how they are run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MORE_SECONDS = 120.0
"""Seconds in which a tool has to end behind its load."""
INSTALLED = Path(__file__).resolve().parents[2] / ".tools"


class ToolError(Exception):
    """A tool did not do its work; the message says why."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Exit status and output of a program."""

    status: int
    output: str
    errors: str

    @property
    def printed(self) -> str:
        """All of it."""
        return (self.output + self.errors).strip()


def program(name: str) -> str:
    """The path of a program; raises `ToolError` with how to get it."""
    places = os.pathsep.join([str(INSTALLED), os.environ.get("PATH", "")])
    found = shutil.which(name, path=places)
    if found is None:
        raise ToolError(f"{name} is not installed: python tests/programs/install.py {name}")
    return found


def run_program(
    command: Sequence[str | Path],
    seconds: float,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Ended:
    """Run a program to its end, with `environment` beside what is set already.

    Raises `ToolError` where it cannot start, or takes longer: it is then killed with all that it
    has started.
    """
    name = Path(command[0]).name
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, **(environment or {})},
            cwd=folder,
            process_group=0,
        )
    except OSError as error:
        raise ToolError(f"{name} does not start: {error.strerror}") from error
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"{name} has not ended after {seconds:g} s, and was killed") from error
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return Ended(process.returncode, output, errors)


def read_json(report: Path) -> Any:
    """The content of a report of JSON; raises `ToolError` where it is cut off."""
    try:
        return json.loads(report.read_text())
    except (OSError, ValueError) as error:
        raise ToolError(f"{report} is not a report: {error}") from error
