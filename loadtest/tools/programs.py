"""Where the programs of load tools are: in `.tools`, or on the path."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from loadtest.tools.report import ToolError

INSTALLED = Path(__file__).resolve().parents[2] / ".tools"


def program(name: str) -> str:
    """The path of a program; raises `ToolError` with how to get it."""
    places = os.pathsep.join([str(INSTALLED), os.environ.get("PATH", "")])
    found = shutil.which(name, path=places)
    if found is None:
        raise ToolError(f"{name} is not installed: python tests/programs/install.py {name}")
    return found
