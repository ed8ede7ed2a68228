"""A pytest plugin that adds markers by folder and by `needs`, for the selection of `make quick`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]

FOLDERS = {
    "backends/onnxruntime": "engine",
    "backends/openvino_genai": "engine",
    "backends/vllm": "engine",
    "conformance": "conformance",
    "top/live": "conformance",
    "tracing/served": "conformance",
    "demo": "engine",
}
"""Folder below `tests` -> the mark of its tests."""


@cache
def _marks(folder: Path) -> tuple[str, ...]:
    """The marks of tests in a folder; asked for each test, of which there are thousands."""
    above = (folder, *folder.parents)
    return tuple(mark for name, mark in FOLDERS.items() if _TESTS / name in above)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Add the markers that follow from where a test lies and which program it runs."""
    for mark in _marks(item.path.parent):
        item.add_marker(mark)
    # Recorded answers are files, which are read as fast as anything.
    if any(needed.args[0] != "recordings" for needed in item.iter_markers("needs")):
        item.add_marker("tools")
