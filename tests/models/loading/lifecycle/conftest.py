"""A house with one model."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import write_model
from models.loading.lifecycle.house import House


@pytest.fixture
async def house(tmp_path: Path) -> House:
    """With the model `m` on disk, version 1."""
    write_model(tmp_path)
    return House(tmp_path)
