"""`TraceExport`: hands finished traces to the exporter process, and never waits for it."""

from __future__ import annotations

import asyncio
import logging
import marshal
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from signal import Signals
from typing import NamedTuple

from penstock.core.log.log_throttle import LogThrottle
from penstock.core.timeline import Trace
from penstock.system.model_variables import passed_on
from penstock.tracing.packed_trace import pack

logger = logging.getLogger(__name__)

_GATHER_SECONDS = 0.05
"""How long traces are gathered before they are written together."""

_FORMAT = 2
"""Of marshal: later ones look for objects that occur twice, which takes longer than it saves."""

_FIRST_DELAY = 0.5
_LONGEST_DELAY = 30.0
"""Seconds before a process that ended is started again; they double while it ends soon."""

_KILL_SECONDS = 1.0

_MORE_VARIABLES = ("GRPC_*",)
"""Environment variables that the process gets beside those of model processes."""


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """What the exporter process needs to know.

    `url` is that of the collector; empty for OpenTelemetry's environment or default. `queue_size`
    bounds the traces that wait in the server, and the spans that wait in the process.
    `schedule_delay` is in milliseconds. `id` is the server's.
    """

    version: str
    id: str
    protocol: str = "http/protobuf"
    url: str = ""
    resource: Mapping[str, str] = field(default_factory=dict)
    queue_size: int = 2048
    schedule_delay: int = 5000
    batch_size: int = 512


@dataclass(slots=True)
class ExportCounts:
    """Spans that a collector has taken, and those that were lost, by the reason.

    `buffer_full`: the exporter process was slower than requests came, or down; `exporter_died`: it
    had them when it ended; `refused`: the collector did not take them; `exit`: the server's exit
    did not wait for them. Spans of traces that never reached the exporter are an estimate.
    """

    exported: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


class TraceExport:
    """A sink of traces. Owns the exporter process, and starts another when it ends.

    What waits for the process is bounded, and what does not fit is dropped and counted. Everything
    runs on the event loop that `start` is called on.
    """

    def __init__(self, settings: ExportSettings) -> None:
        self.counts = ExportCounts()
        self._settings = settings
        self._buffer = TraceBuffer(settings.queue_size)
        self._link: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._writing = memoryview(b"")
        self._frames = Frames()
        self._sent = 0
        self._used = False
        self._started = 0.0
        self._delay = _FIRST_DELAY
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._closed: asyncio.Future[None] | None = None
        self._lost_log, self._refused_log = LogThrottle(), LogThrottle()
        self._reason = ""

    @property
    def pid(self) -> int | None:
        """Process id of the exporter process, while there is one."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process."""
        self._loop = asyncio.get_running_loop()
        self._spawn()

    def submit(self, trace: Trace) -> None:
        """Take a trace; never waits."""
        spans = span_count(trace)
        try:
            packed = frame(marshal.dumps(pack(trace), _FORMAT))
        except ValueError:  # a fact or a model's span with values that are not plain
            self._drop("not_plain", spans)
            self._log_lost("one has values that are not numbers, booleans or texts")
            return
        finally:
            trace.forget()
        if not self._buffer.add(packed, spans):
            self._drop("buffer_full", spans)
            self._log_lost(self._why_full(len(packed)))
        elif "flush" not in self._timers:
            self._timers["flush"] = self._loop.call_later(_GATHER_SECONDS, self._flush)

    async def close(self, seconds: float) -> None:
        """Export what is left, for so many seconds at most; then nothing is left of the process."""
        self._closed = self._loop.create_future()
        for timer in self._timers.values():
            timer.cancel()
        if self._link is not None:
            self._flush()
            if self._used:  # else it has nothing to flush, and may not even have begun
                await self._wait_for_exit(seconds)
            self._end()
        self._drop("exit", self._buffer.take()[1])

    async def _wait_for_exit(self, seconds: float) -> None:
        """Wait until the process has exported everything and ended."""
        assert self._closed is not None
        await asyncio.wait([self._closed], timeout=seconds)
        if not self._closed.done():
            self._drop("exit", self._sent)
            logger.warning("the exit did not wait any longer for the collector of traces")

    def _spawn(self) -> None:
        """Start the process; raises `OSError` if there are no descriptors or processes for it."""
        ours, theirs = socket.socketpair()
        with theirs, ExitStack() as failed:
            failed.callback(ours.close)
            # Takes a few milliseconds of the loop, at the start and after a kill.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "penstock.tracing.exporter", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=passed_on(os.environ, _MORE_VARIABLES),
                start_new_session=True,
            )
            failed.pop_all()
        ours.setblocking(False)
        self._link, self._started = ours, time.monotonic()
        self._frames, self._sent, self._used, self._reason = Frames(), 0, False, ""
        self._loop.add_reader(ours.fileno(), self._read)
        settings = {**asdict(self._settings), "resource": dict(self._settings.resource)}
        self._write(frame(marshal.dumps(settings)))

    def _flush(self) -> None:
        """Write what has gathered, if the last is written and there is a process."""
        self._timers.pop("flush", None)
        if self._link is None or self._writing:
            return
        data, spans = self._buffer.take()
        self._sent += spans
        self._used = self._used or spans > 0
        self._write(data)

    def _write(self, data: bytes) -> None:
        assert self._link is not None
        self._writing = memoryview(data)
        self._loop.add_writer(self._link.fileno(), self._write_more)
        self._write_more()

    def _write_more(self) -> None:
        link = self._link
        if link is None:
            return
        try:
            sent = link.send(self._writing)
        except BlockingIOError:
            return
        except OSError:  # it has ended, which `_read` finds out
            sent = len(self._writing)
        self._writing = self._writing[sent:]
        if self._writing:
            return
        self._loop.remove_writer(link.fileno())
        if len(self._buffer):
            self._flush()
        elif self._closed is not None:
            link.shutdown(socket.SHUT_WR)

    def _read(self) -> None:
        assert self._link is not None
        try:
            data = self._link.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        for payload in self._frames.add(data):
            self._take_report(Report(*marshal.loads(payload)))
        if not data:
            self._ended()

    def _take_report(self, report: Report) -> None:
        self.counts.exported += report.exported
        self._sent = max(0, self._sent - report.exported - report.failed)
        if report.failed:
            self._drop("refused", report.failed)
            if self._refused_log.add(self._loop.time()):
                logger.warning(
                    "the collector does not take traces: %s; %d spans are lost so far",
                    report.reason,
                    self.counts.dropped["refused"],
                )
        elif report.reason:
            self._reason = report.reason

    def _ended(self) -> None:
        """The process has ended: start another, unless the server exits."""
        if self._closed is not None:
            if not self._closed.done():
                self._closed.set_result(None)
            return
        status = self._end()
        self._drop("exporter_died", self._sent)
        lived = time.monotonic() - self._started
        if lived > _LONGEST_DELAY:
            self._delay = _FIRST_DELAY
        self._spawn_later()
        self._reason = f"the exporter process has ended: {self._reason or _status(status)}"
        self._log_lost(self._reason)

    def _spawn_again(self) -> None:
        del self._timers["spawn"]
        try:
            self._spawn()
        except OSError as error:
            self._reason = f"the exporter process cannot be started: {error.strerror}"
            logger.warning("traces wait: %s", self._reason)
            self._spawn_later()

    def _spawn_later(self) -> None:
        self._timers["spawn"] = self._loop.call_later(self._delay, self._spawn_again)
        self._delay = min(self._delay * 2, _LONGEST_DELAY)

    def _end(self) -> int:
        """Kill the process, if it still runs; its exit status."""
        assert self._process is not None
        assert self._link is not None
        self._loop.remove_reader(self._link.fileno())
        self._loop.remove_writer(self._link.fileno())
        self._link.close()
        process, self._process, self._link = self._process, None, None
        self._writing = memoryview(b"")
        try:
            return process.wait(0.01)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait(_KILL_SECONDS)

    def _drop(self, reason: str, spans: int) -> None:
        if spans:
            self.counts.dropped[reason] += spans

    def _why_full(self, size: int) -> str:
        """Why a trace of so many bytes has no room."""
        if size > MOST_BYTES:
            return f"one has {size} bytes, more than the {MOST_BYTES} that may wait"
        if self._link is None:
            return self._reason
        return "the collector or the exporter process is too slow"

    def _log_lost(self, reason: str) -> None:
        if self._lost_log.add(self._loop.time()):
            logger.warning("traces are lost: %s; %s", reason, "requests are served all the same")


def span_count(trace: Trace) -> int:
    """About how many spans a trace has: each request has one, and its execution if there is one."""
    return 1 + sum(2 if each.batch is not None else 1 for each in trace.timelines)


def _status(status: int) -> str:
    return f"signal {Signals(-status).name}" if status < 0 else f"exit status {status}"


MOST_BYTES = 16 << 20


class TraceBuffer:
    """Packed traces in order, up to a number of them and of bytes. Knows no clock or socket."""

    def __init__(self, most: int, most_bytes: int = MOST_BYTES) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._traces: list[bytes] = []
        self._bytes = 0
        self._spans = 0

    def __len__(self) -> int:
        return len(self._traces)

    def add(self, packed: bytes, spans: int) -> bool:
        """Add a trace of so many spans; `False` if there is no room for it."""
        if len(self._traces) >= self._most or self._bytes + len(packed) > self._most_bytes:
            return False
        self._traces.append(packed)
        self._bytes += len(packed)
        self._spans += spans
        return True

    def take(self) -> tuple[bytes, int]:
        """All traces joined, and the number of their spans; the buffer is empty then."""
        data, spans = b"".join(self._traces), self._spans
        self._traces.clear()
        self._bytes = self._spans = 0
        return data, spans


class Report(NamedTuple):
    """What became of some spans: how many the collector has taken, how many were lost, and why."""

    exported: int
    failed: int
    reason: str = ""


def frame(payload: bytes) -> bytes:
    """The frame of a payload."""
    return len(payload).to_bytes(4, "little") + payload


class Frames:
    """Takes bytes as they come, and gives the payloads that are complete."""

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, data: bytes) -> list[bytes]:
        """The payloads that are complete with `data`."""
        self._data += data
        found: list[bytes] = []
        at = 0
        while (end := self._end(at)) <= len(self._data):
            found.append(bytes(self._data[at + 4 : end]))
            at = end
        del self._data[:at]
        return found

    def _end(self, at: int) -> int:
        """Where the frame that begins at `at` ends, at least behind its length."""
        return at + 4 + int.from_bytes(self._data[at : at + 4], "little")
