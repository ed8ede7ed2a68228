"""Everything here runs on the loop that the server runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from access.models import write_models
from harness.checked_loop import CheckedLoop
from penstock.settings import GrpcSettings


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"uvloop": CheckedLoop}


@pytest.fixture(params=["grpcio", "native"])
def local(request: pytest.FixtureRequest) -> GrpcSettings:
    """An endpoint on a free port, by each of the transports."""
    return GrpcSettings(address="127.0.0.1", port=0, transport=request.param)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return write_models(tmp_path)
