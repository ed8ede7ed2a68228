"""Models of the worlds that are played, and silence."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.models import write_repository


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("models")
    write_repository(path)
    gc.collect()
    gc.freeze()  # each world collects at its end, and need not look at what is older
    yield path
    gc.unfreeze()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Processes that are killed by the hundred leave no lines."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
