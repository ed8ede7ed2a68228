"""One server with the demo models for all tests that only ask it things."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.serving import Served, serving
from penstock.demo import write_demo


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model repository."""
    directory = tmp_path_factory.mktemp("demo")
    write_demo(directory, report=lambda _: None)
    return directory


@pytest.fixture(scope="session")
def server(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`penstock serve` over the demo."""
    with serving(demo, tmp_path_factory.mktemp("log") / "server.log") as served:
        yield served
