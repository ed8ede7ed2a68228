"""Answers recorded from a running Triton server; kept beside the repository, not in it."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

_SHARED = Path(__file__).resolve().parents[3] / "shared"
_ANSWERS = _SHARED / "golden"
_MODELS = _SHARED / "tools" / "real_triton_models.py"

MISSING = "" if _ANSWERS.is_dir() and _MODELS.is_file() else f"no recorded answers in {_ANSWERS}"
"""Why there are no answers; empty when there are."""

needs_answers = pytest.mark.needs("recordings", MISSING)


def answers(name: str) -> dict[str, Any]:
    """The answers in one file by what was asked; empty when nothing was recorded."""
    path = _ANSWERS / name
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def log(name: str) -> str:
    """What the server logged meanwhile; empty when nothing was recorded."""
    path = _ANSWERS / name
    return path.read_text() if path.is_file() else ""


def write_models(which: str, path: Path) -> Path:
    """Write the models that the answers are about: `good` ones or `bad` ones."""
    runpy.run_path(str(_MODELS))[which](str(path))
    return path
