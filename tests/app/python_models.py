"""Writes Python models for tests of the start and the exit."""

from __future__ import annotations

from pathlib import Path

_CONFIG = """
backend: "python"
input { name: "X" data_type: TYPE_INT32 dims: 1 }
output { name: "X" data_type: TYPE_INT32 dims: 1 }
"""


def write_python_model(repository: Path, name: str, source: str) -> Path:
    """A model of one input and one output; returns its folder."""
    (repository / name / "1").mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(_CONFIG)
    (repository / name / "1" / "model.py").write_text(source)
    return repository / name
