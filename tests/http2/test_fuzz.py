"""A bounded part of the fuzzing; `python -m http2.fuzzing` does as much as one likes."""

from __future__ import annotations

import logging

import pytest

from http2.fuzzing.fuzzer import Fuzzer
from http2.fuzzing.talks import record


@pytest.mark.slow
async def test_hostile_bytes_do_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    talks = await record()
    with caplog.at_level(logging.WARNING):
        fuzzer = Fuzzer(talks, seed=1)
        await fuzzer.control()
        await fuzzer.run(5000)
        await fuzzer.control()
    assert caplog.records == []
    assert {"PROTOCOL_ERROR", "COMPRESSION_ERROR"} <= set(fuzzer.ends)
