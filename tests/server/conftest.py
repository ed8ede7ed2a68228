"""A server with a few models."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import write_model
from server.house import House

ALL = "version_policy { all { } }"


@pytest.fixture
def house(tmp_path: Path) -> House:
    """With the models `m`, version 1, and `two`, versions 1 and 3, on disk."""
    write_model(tmp_path)
    write_model(tmp_path, "two", (1, 3), ALL)
    return House(tmp_path)
