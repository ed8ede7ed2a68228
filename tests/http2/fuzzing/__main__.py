"""As many inputs as one likes; what broke the connection is written to a file.

python -m http2.fuzzing --inputs 1000000 [--seed 1] [--json FILE]    (with tests/ on PYTHONPATH)
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import uvloop

from harness.fuzz_runs import Progress, main
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


async def _fuzz(progress: Progress) -> dict[str, Any]:
    alarm = _Alarm()
    logging.getLogger().addHandler(alarm)
    asyncio.get_running_loop().set_exception_handler(alarm.from_loop)
    fuzzer = Fuzzer(await record(), progress.seed)
    while count := progress.next(fuzzer):
        await fuzzer.run(count)
        await fuzzer.control()
        assert not alarm.found, alarm.found[:3]
        progress.show(fuzzer, f"{fuzzer.connections} connections")
    return progress.figures(fuzzer, connections=fuzzer.connections, ends=fuzzer.ends)


if __name__ == "__main__":
    main(__doc__, lambda progress: uvloop.run(_fuzz(progress)))
