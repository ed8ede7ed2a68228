"""The repository of these tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.loading.load_graph.house import House


@pytest.fixture
async def house(tmp_path: Path) -> House:
    """With two plain models, an ensemble of them, and one of that ensemble and one of them."""
    house = House(tmp_path)
    house.write(a="", b="", pair="a b", more="pair a")
    return house
