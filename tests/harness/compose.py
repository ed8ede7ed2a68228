"""Compose files as the library reads them that `docker compose` has, and where it is."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from programs.places import find

_CHECKER = find("compose-spec")

needs_compose = pytest.mark.needs(
    "compose-spec", "" if _CHECKER else "there is no compose-spec: `make tools` says why"
)


def project(folder: Path, *names: str) -> dict[str, Any]:
    """The project of compose files in a folder; fails the test if there is a fault in them."""
    command = [_CHECKER, "--format=json", *names]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
