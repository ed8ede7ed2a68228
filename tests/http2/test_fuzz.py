"""A bounded part of the fuzzing; `python -m http2.fuzz` does as much as one likes."""

from __future__ import annotations

import logging

import pytest

from http2.fuzz import run


async def test_changed_conversations_do_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await run(3000, seed=1)
    assert caplog.records == []
