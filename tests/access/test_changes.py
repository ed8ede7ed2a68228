"""Calls do not fail while certificates, authorities, keys and the policy change under them.

By hand, with as many calls as one likes: `python -m loadtest.scenarios.access_changes`.
"""

from __future__ import annotations

import pytest
from loadtest.scenarios.access_changes import measure


@pytest.mark.slow
def test_no_call_fails_while_everything_changes() -> None:
    report = measure(1500, changes=2)
    assert report.failed == {}
    assert report.calls >= 1500
    assert report.changes >= 2
