"""Load of many streams of tokens, read in a process of its own by a client that costs little.

A stock client in Python spends several times on a message what the server does, and a machine of
few cores then measures its client. This one takes about a microsecond.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from itertools import cycle
from pathlib import Path

from loadtest.process import cpu_seconds
from loadtest.stream_line import Line, grpc_line, http_line
from loadtest.stream_tally import Tally, percentile

_ENDLESS = 1 << 40  # rounds
_WARMING = 1.0  # seconds of calls at a rate before what is measured
_SETTLING = 0.3  # seconds between the first message of the last stream and what is measured


@dataclass(frozen=True, slots=True)
class StreamLoad:
    """`streams` loops of calls, each of which is answered by a stream.

    With `rounds` each loop calls so often, and all of it is measured; else calls go on until, with
    every stream under way, `seconds` were measured. With `rate`, for `grpc`, so many calls a second
    begin whatever has ended, and `streams` are the connections. `headers` go with every call, and
    errors that have `refusal` in them are counted. `request_files` hold what is sent, in turns:
    serialized `ModelInferRequest`s for `grpc`; bodies for `sse` and for `answer`, which is a whole
    one, that go to `paths`. `watched` are processes by name whose CPU time is measured. `mark` is a
    text that every token has in it.
    """

    target: str
    wire: str
    request_files: Sequence[str]
    streams: int
    rounds: int = 0
    seconds: float = 0.0
    paths: Sequence[str] = ("",)
    connections: int = 4
    watched: Mapping[str, Sequence[int]] = field(default_factory=dict)
    mark: str = ""
    rate: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class StreamOutcome:
    """Counts of a load in `seconds`; times are in milliseconds, CPU time in seconds by process.

    `calls` have ended, `refused` are those of them that were refused. `tokens` are those that the
    usage of OpenAI's answers counts; of whole calls is the time `whole`.
    """

    calls: int
    messages: int
    tokens: int
    marks: int
    seconds: float
    first_p50: float
    first_p99: float
    gap_p50: float
    gap_p99: float
    whole_p50: float
    whole_p99: float
    cpu: Mapping[str, float]
    refused: int
    refused_p50: float
    refused_p99: float


def run(load: StreamLoad) -> StreamOutcome:
    """Put the load on from another process."""
    done = subprocess.run(_command(load), check=True, stdout=subprocess.PIPE)
    return StreamOutcome(**json.loads(done.stdout))


def run_here(load: StreamLoad) -> StreamOutcome:
    """Put the load on from this process, which does nothing else: at once, for short loads."""
    client = _Client(load)
    try:
        return client.run()
    finally:
        client.close()


@contextmanager
def kept_on(load: StreamLoad) -> Iterator[None]:
    """Put the load on from another process for as long as this is open, and count nothing."""
    process = subprocess.Popen(_command(replace(load, rounds=_ENDLESS)))
    try:
        yield
        if process.poll() is not None:
            raise SystemExit(f"a load ended with status {process.returncode}")
    finally:
        process.terminate()
        process.wait()


def _command(load: StreamLoad) -> list[str]:
    return [sys.executable, "-m", "loadtest.stream_load", json.dumps(asdict(load))]


class _Client:
    def __init__(self, load: StreamLoad) -> None:
        self._load = load
        self._messages = cycle([Path(file).read_bytes() for file in load.request_files])
        self._tally = Tally(load.mark, load.refusal)
        self._firsts: list[float] = []
        self._left = 0
        self._lines = self._opened()
        self._poll = select.epoll()
        self._by_number = {line.fileno(): line for line in self._lines}
        for number in self._by_number:
            self._poll.register(number, select.EPOLLIN)

    def _opened(self) -> list[Line]:
        load = self._load
        tally, ended, headers = self._tally, self._ended, load.headers
        if load.wire == "grpc":
            count = min(load.connections, load.streams)
            return [grpc_line(load.target, tally, ended, headers) for _ in range(count)]
        paths = (path for _, path in zip(range(load.streams), cycle(load.paths), strict=False))
        return [http_line(load.target, path, tally, ended, headers) for path in paths]

    def close(self) -> None:
        """Close all connections."""
        self._poll.close()
        for line in self._lines:
            line.close()

    def run(self) -> StreamOutcome:
        """All of the load, and what came of it."""
        if self._load.rate:
            start, cpu = self._offered()
        elif self._load.rounds:
            self._calls(len(self._lines), len(self._lines))
            start, cpu = self._begin()
            self._calls(self._load.streams, self._load.rounds * self._load.streams)
        else:
            start, cpu = self._window()
        return self._outcome(time.perf_counter() - start, cpu)

    def _calls(self, streams: int, calls: int) -> None:
        """So many calls, as many at a time as there are streams, to the end of the last."""
        self._left = calls
        self._start(streams)
        done = self._tally.calls + calls
        self._read_until(lambda: self._tally.calls >= done)

    def _window(self) -> tuple[float, dict[str, float]]:
        """Calls without end; returns once what is to be measured was."""
        streams, tally = self._load.streams, self._tally
        self._left = 1 << 60
        self._start(streams)
        self._read_until(lambda: len(tally.firsts) >= streams)
        settled = time.perf_counter() + _SETTLING
        self._read_until(lambda: time.perf_counter() >= settled)
        self._firsts = list(tally.firsts)  # few calls begin while others are measured
        start, cpu = self._begin()
        end = start + self._load.seconds
        self._read_until(lambda: time.perf_counter() >= end)
        return start, cpu

    def _offered(self) -> tuple[float, dict[str, float]]:
        """Calls at the rate, of which those are measured that end after the first second."""
        lines, gap = cycle(self._lines), 1 / self._load.rate
        due = time.perf_counter()
        settled, cpu, start = due + _WARMING, self._cpu(), 0.0
        while not start or due < start + self._load.seconds:
            if not start and due >= settled:
                start, cpu = self._begin()
            next(lines).start(next(self._messages))
            due += gap
            self._read(0.0)  # also where calls begin late
            while time.perf_counter() < due:
                self._read(1e-3)
        return start, cpu

    def _start(self, streams: int) -> None:
        for number in range(streams):
            self._ended(self._lines[number % len(self._lines)])

    def _ended(self, line: Line) -> None:
        if self._left:
            self._left -= 1
            line.start(next(self._messages))

    def _read_until(self, done: Callable[[], bool]) -> None:
        while not done():
            self._read(0.1)

    def _read(self, longest: float) -> None:
        for number, _ in self._poll.poll(longest):
            self._by_number[number].read()

    def _begin(self) -> tuple[float, dict[str, float]]:
        self._tally.clear()
        return time.perf_counter(), self._cpu()

    def _cpu(self) -> dict[str, float]:
        watched = {**self._load.watched, "client": [os.getpid()]}
        return {name: sum(map(cpu_seconds, pids)) for name, pids in watched.items()}

    def _outcome(self, seconds: float, cpu: dict[str, float]) -> StreamOutcome:
        used = {name: value - cpu[name] for name, value in self._cpu().items()}
        tally, firsts = self._tally, self._firsts or self._tally.firsts
        return StreamOutcome(
            calls=tally.calls,
            messages=tally.messages,
            tokens=tally.tokens,
            marks=tally.marks,
            seconds=seconds,
            first_p50=percentile(firsts, 0.5) * 1e3,
            first_p99=percentile(firsts, 0.99) * 1e3,
            gap_p50=percentile(tally.gaps, 0.5) * 1e3,
            gap_p99=percentile(tally.gaps, 0.99) * 1e3,
            whole_p50=percentile(tally.wholes, 0.5) * 1e3,
            whole_p99=percentile(tally.wholes, 0.99) * 1e3,
            cpu=used,
            refused=len(tally.refusals),
            refused_p50=percentile(tally.refusals, 0.5) * 1e3,
            refused_p99=percentile(tally.refusals, 0.99) * 1e3,
        )


if __name__ == "__main__":
    print(json.dumps(asdict(_Client(StreamLoad(**json.loads(sys.argv[1]))).run())))
