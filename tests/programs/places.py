"""Where the programs are that some tests run and that are not Python packages."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

INSTALLED = Path(__file__).parents[2] / ".tools"
"""Where `make tools` puts them."""

_GO = Path.home() / "go" / "bin"


def find(program: str, variable: str = "") -> str:
    """The path of a program: what the environment variable names, else one of `make tools`, else
    one on the path or among Go's; empty if there is none.
    """
    named = os.environ.get(variable, "")
    places = os.pathsep.join([str(INSTALLED), os.environ.get("PATH", ""), str(_GO)])
    return named or shutil.which(program, path=places) or ""
