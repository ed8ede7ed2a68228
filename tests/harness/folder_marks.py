"""A pytest plugin that adds markers by folder and by `needs`, for what the Makefile selects.

It also puts tests behind the others of their files that are marked as the last.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]

FOLDERS = {
    "backends/fil": "engine",
    "backends/onnxruntime": "engine",
    "backends/openvino": "engine",
    "backends/openvino_genai": "engine",
    "backends/pytorch": "engine",
    "backends/tensor_models": "engine",
    "backends/tensorflow": "engine",
    "backends/vllm": "engine",
    "conformance": "conformance",
    "top/live": "conformance",
    "tracing/served": "conformance",
    "demo": "engine",
    "gpu": "gpu",
    "backends/python/test_documentation.py": "gate",
    "cli/test_settings_reference.py": "gate",
    "conformance/test_cited_rows.py": "gate",
    "conformance/test_contract.py": "gate",
    "docs": "gate",
    "observability/test_rules.py": "gate",
    "packaging/test_compiled.py": "gate",
    "packaging/test_coverage_floors.py": "gate",
    "packaging/test_dependencies.py": "gate",
    "packaging/test_whole_run.py": "gate",
    "telemetry/test_documented.py": "gate",
    "test_assertions.py": "gate",
}
"""Folder or file below `tests` -> the mark of its tests."""


@cache
def _marks(file: Path) -> tuple[str, ...]:
    """The marks of tests in a file; asked for each test, of which there are thousands."""
    above = (file, *file.parents)
    return tuple(mark for name, mark in FOLDERS.items() if _TESTS / name in above)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Add the markers that follow from where a test lies and which program it runs."""
    for mark in _marks(item.path):
        item.add_marker(mark)
    # Recorded answers are files, which are read as fast as anything.
    if any(needed.args[0] != "recordings" for needed in item.iter_markers("needs")):
        item.add_marker("tools")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put behind the others of its file what takes from them what they share, such as a server."""
    for item in [item for item in items if item.get_closest_marker("last")]:
        items.remove(item)
        behind = max((at for at, other in enumerate(items) if other.path == item.path), default=-1)
        items.insert(behind + 1, item)
