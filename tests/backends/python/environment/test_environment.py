"""The cache of environments that models bring."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock_backends.python.environment.environment import cache_directory


def test_cache_in_a_relative_directory_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packages are installed by a process that runs in the model's directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_CACHE", "cache")
    assert cache_directory() == tmp_path / "cache" / "environments"
