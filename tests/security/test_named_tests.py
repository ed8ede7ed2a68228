"""Each test that the table of public faults names is one that pytest collects."""

from __future__ import annotations

import pytest

from harness.collected import NAMES
from security.public_faults import FAULTS


def test_each_named_test_is_collected(request: pytest.FixtureRequest) -> None:
    """Of the files that this run reads: in the whole run, all of them."""
    collected = request.config.stash[NAMES]
    files = {name.partition("::")[0] for name in collected}
    functions = {name.partition("[")[0] for name in collected}
    named = {f"tests/{name}" for fault in FAULTS for name in fault.tests}
    read = {name for name in named if name.partition("::")[0] in files}
    if not read:
        pytest.skip("there is nothing to look for without the tests that the table names")
    assert sorted(read - collected - functions) == []
