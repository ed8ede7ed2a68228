"""A pytest plugin that skips tests marked with `needs` where what they need is missing."""

from __future__ import annotations

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    """Skip a test with the reason that its mark gives, if it gives one."""
    for needed in list(item.iter_markers("needs")):
        _, missing = needed.args
        if missing:
            # In front of other reasons, such as that there are no recordings to ask about.
            item.add_marker(pytest.mark.skip(reason=missing), append=False)
