"""A loader, in a house of its own."""

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
