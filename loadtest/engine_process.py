"""An engine without a server, kept in a process of its own between measurements."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class EngineProcess:
    """A process of `loadtest.engines` that has loaded its model."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def measure(
        self, streams: int, rounds: int, tokens: int, *, piped: bool = False
    ) -> dict[str, float]:
        """Figures of the engine alone; see `loadtest.engines`."""
        assert self._process.stdin is not None
        plan = {"streams": streams, "rounds": rounds, "tokens": tokens, "piped": piped}
        self._process.stdin.write(json.dumps(plan) + "\n")
        self._process.stdin.flush()
        found: dict[str, float] = json.loads(self.line_that_begins("{"))
        return found

    def line_that_begins(self, start: str) -> str:
        """The next line of this kind; engines print others of their own."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(start):
                return line
        raise SystemExit("the engine without a server has ended")


@contextmanager
def engine_process(
    python: str, engine: str, model: Path, threads: int = 0
) -> Iterator[EngineProcess]:
    """The engine of this name with the model of a version directory; 0 threads are all cores."""
    command = [python, "-m", "loadtest.engines", engine, str(model), str(threads)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
        start_new_session=True,
    )
    try:
        alone = EngineProcess(process)
        alone.line_that_begins("ready")
        yield alone
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # with the processes of vLLM's engine
        process.wait(60)
