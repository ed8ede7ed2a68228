"""A version builder with its repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import InstallBackend
from models.loading.build_version.house import House


@pytest.fixture
async def house(tmp_path: Path, install_backend: InstallBackend) -> House:
    path = tmp_path / "models"
    path.mkdir()
    return House(path, install_backend)
