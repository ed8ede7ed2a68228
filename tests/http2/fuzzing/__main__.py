"""As many inputs as one likes; what broke the connection is written to a file.

python -m http2.fuzzing --inputs 1000000 [--seed 1] [--json FILE]    (with tests/ on PYTHONPATH)
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import uvloop

from harness.fuzz_command import FuzzRun, MemoryGrowth, fuzz_command
from http2.fuzzing.fuzzer import Fuzzer
from http2.fuzzing.talks import record


class _Alarm(logging.Handler):
    """A logged error is a fault of ours, as is whatever reaches the loop."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record))

    def from_loop(self, _: Any, context: dict[str, Any]) -> None:
        self.found.append(repr(context))


async def _fuzz(run: FuzzRun) -> dict[str, Any]:
    alarm, growth = _Alarm(), MemoryGrowth()
    logging.getLogger().addHandler(alarm)
    asyncio.get_running_loop().set_exception_handler(alarm.from_loop)
    fuzzer = Fuzzer(await record(), run.seed)
    for inputs in run.rounds(fuzzer):
        await fuzzer.run(inputs)
        await fuzzer.control()
        assert not alarm.found, alarm.found[:3]
        run.show(fuzzer, f", {fuzzer.connections} connections, {growth.look()}")
    return run.figures(fuzzer) | {
        "connections": fuzzer.connections,
        "memory_mib": growth.mib,
        "ends": fuzzer.ends,
    }


if __name__ == "__main__":
    fuzz_command(__doc__, lambda run: uvloop.run(_fuzz(run)))
