"""One server with the demo models for all tests that only ask it things."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from harness.serving import Served, serving
from penstock.demo import write_demo

_ENGINES = "tests/conformance/language_models/"


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model repository."""
    directory = tmp_path_factory.mktemp("demo")
    write_demo(directory, report=lambda _: None)
    return directory


class _EnginesOnce(LoadFileScheduling):  # type: ignore[misc]
    """Gives the files that share an engine to one process: vLLM takes a minute to start."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return _ENGINES if file.startswith(_ENGINES) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files stay together, and those of language models."""
    return _EnginesOnce(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def server(demo: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`penstock serve` over the demo."""
    with serving(demo, tmp_path_factory.mktemp("log") / "server.log") as served:
        yield served
