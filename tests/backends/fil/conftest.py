"""Instances of forests without a server, and forests that two frameworks have made."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from backends.conftest import OpenInstance
from penstock_backends.fil import FilBackend

pytest.importorskip("treelite", reason="treelite is not installed")


@pytest.fixture
def open_backend(open_instance: OpenInstance) -> OpenInstance:
    return partial(open_instance, FilBackend)


@pytest.fixture(scope="session")
def rows() -> Any:
    """Rows of five features, one of them missing here and there."""
    found = np.random.default_rng(3).normal(size=(200, 5)).astype(np.float32)
    found[::17, 2] = np.nan
    return found
