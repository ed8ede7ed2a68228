"""A pytest plugin that adds markers by folder and by `needs`, for the selection of `make quick`."""

from __future__ import annotations

from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]

_FOLDERS = {
    "backends/onnxruntime": "engine",
    "backends/openvino_genai": "engine",
    "backends/vllm": "engine",
    "conformance": "conformance",
    "top/live": "conformance",
    "tracing/served": "conformance",
    "demo": "engine",
}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Add the markers that follow from where a test lies and which program it runs."""
    for folder, mark in _FOLDERS.items():
        if _TESTS / folder in item.path.parents:
            item.add_marker(mark)
    # Recorded answers are files, which are read as fast as anything.
    if any(needed.args[0] != "recordings" for needed in item.iter_markers("needs")):
        item.add_marker("tools")
