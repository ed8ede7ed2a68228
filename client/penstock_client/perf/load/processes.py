"""The processes of a load: their start, common beginning, messages and end."""

from __future__ import annotations

import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO

from penstock_client.perf.errors import PerfError, Status
from penstock_client.perf.load.job import Chunk, Ended, Job, Ready
from penstock_client.perf.load.pipe import read_message, write_message

_HEAD_START = 0.05  # seconds between the word to begin and the beginning
_LEAVE_SECONDS = 10.0


class Processes:
    """Running processes, one for each job."""

    def __init__(self, running: Sequence[subprocess.Popen[bytes]]) -> None:
        self._running = running
        self._selector = selectors.DefaultSelector()
        for number, process in enumerate(running):
            self._selector.register(_pipe(process.stdout), selectors.EVENT_READ, number)
        self.problems: list[str] = []
        """Reasons why processes could not put on their load to its end."""

    def begin(self, jobs: Sequence[Job]) -> float:
        """Have them connect, then begin together; the time of that. Raises `PerfError`."""
        for process, job in zip(self._running, jobs, strict=True):
            self._tell(process, job)
        problems = [self._ready(process) for process in self._running]
        for problem, job in zip(problems, jobs, strict=True):
            if problem:
                raise PerfError(
                    f"no connection to {job.endpoint.authority}: {problem.lower()}",
                    Status.UNREACHABLE,
                )
        start = time.perf_counter() + _HEAD_START
        for process in self._running:
            self._tell(process, start)
        return start

    def chunks(self, longest: float) -> Iterator[tuple[int, Chunk] | None]:
        """Chunks, each with its process's number, until all end; `None` after `longest` seconds."""
        while self._selector.get_map():
            found = self._selector.select(longest)
            if not found:
                yield None
            for key, _ in found:
                message = self._next(key)
                if isinstance(message, Chunk):
                    yield key.data, message

    def stop(self) -> None:
        """Have them send nothing any more."""
        for process in self._running:
            self._close_input(process)

    def close(self) -> None:
        """End them, at once where they do not end by themselves."""
        for process in self._running:
            try:
                self._close_input(process)
                process.wait(0.0 if self._selector.get_map() else _LEAVE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            _pipe(process.stdout).close()
        self._selector.close()

    @staticmethod
    def _close_input(process: subprocess.Popen[bytes]) -> None:
        try:
            _pipe(process.stdin).close()
        except BrokenPipeError:
            return  # it has ended with something unread

    @staticmethod
    def _tell(process: subprocess.Popen[bytes], message: object) -> None:
        try:
            write_message(_pipe(process.stdin), message)
        except BrokenPipeError as error:
            raise PerfError(_gone(process), Status.UNREACHABLE) from error

    @staticmethod
    def _ready(process: subprocess.Popen[bytes]) -> str:
        try:
            message = read_message(_pipe(process.stdout))
        except EOFError as error:
            raise PerfError(_gone(process), Status.UNREACHABLE) from error
        assert isinstance(message, Ready)
        return message.problem

    def _next(self, key: selectors.SelectorKey) -> object:
        process = self._running[key.data]
        try:
            message = read_message(_pipe(process.stdout))
        except EOFError:
            self._selector.unregister(key.fileobj)
            self.problems.append(_gone(process))
            return None
        if isinstance(message, Ended):
            self._selector.unregister(key.fileobj)
            if message.problem:
                self.problems.append(message.problem)
        return message


@contextmanager
def processes(count: int) -> Iterator[Processes]:
    """So many processes, which end with this."""
    command = [sys.executable, "-m", "penstock_client.perf.load.child"]
    running = Processes(
        [
            # A group of their own: Ctrl-C goes to the starter, which ends them.
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
            )
            for _ in range(count)
        ]
    )
    try:
        yield running
    finally:
        running.close()


def _gone(process: subprocess.Popen[bytes]) -> str:
    return f"a process of the load ended with {ending(process.wait())}"


def ending(status: int) -> str:
    """The end of a process in words: its status, or the signal that killed it."""
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"status {status}"


def _pipe(pipe: object) -> BinaryIO:
    assert pipe is not None
    return pipe  # type: ignore[return-value]
