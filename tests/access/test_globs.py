"""Patterns of names."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.access.globs import Glob
from penstock.core.errors import ConfigError


@given(st.text("ab*", min_size=1, max_size=12), st.text("ab", max_size=12))
def test_a_pattern_fits_what_a_shell_takes_for_it(pattern: str, name: str) -> None:
    assert Glob(pattern).fits(name) == fnmatchcase(name, pattern)


def test_no_pattern_explodes() -> None:
    """Backtracking would take longer than the test may run."""
    assert not Glob("a*" * 127 + "b").fits("a" * 100_000)


@pytest.mark.parametrize("pattern", ["", "a?", "[ab]", "a" * 257])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError):
        Glob(pattern)
