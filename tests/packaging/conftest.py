"""An environment like that of somebody who has installed Penstock."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

import pytest

from harness.package_author import Author, index_problem

_ROOT = Path(__file__).parents[2]
_UV = Path(sys.executable).with_name("uv")


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with Penstock, as installed from its source, and pip."""
    home = tmp_path_factory.mktemp("author")
    if problem := index_problem(home / "downloads"):
        pytest.skip(f"no package index is reachable: {problem}")
    author = Author(home, home / "environment")
    venv.create(author.environment, symlinks=True)
    # The same by ensurepip and pip takes four times as long.
    author.run(f"'{_UV}' pip install --quiet pip '{_ROOT}'")
    return author.environment
