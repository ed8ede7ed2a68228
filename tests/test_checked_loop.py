"""The loop of tests says what they leave open, and does not wait for its end."""

from __future__ import annotations

import asyncio
import os
import re

import pytest

from harness.checked_loop import CheckedLoop


def test_a_process_that_is_left_is_named() -> None:
    loop = CheckedLoop()
    process = loop.run_until_complete(asyncio.create_subprocess_exec("sleep", "600"))
    process.kill()
    with pytest.raises(AssertionError, match=re.escape("unclosed resource <UVProcessTransport")):
        loop.close()
    os.waitpid(process.pid, 0)  # as the loop cannot any more: other tests count what is left
