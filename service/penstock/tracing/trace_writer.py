"""`TraceWriter`: writes finished traces to files on a thread, so that requests never wait."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread

from penstock.core.log.log_throttle import LogThrottle
from penstock.core.timeline import Trace
from penstock.settings import TraceSettings
from penstock.tracing.sampling import Sampling
from penstock.tracing.settings import TraceControl
from penstock.tracing.trace_file import TraceFiles
from penstock.tracing.trace_json import trace_json

logger = logging.getLogger(__name__)

_GATHER_SECONDS = 0.05
"""How long traces are gathered before they are written together: what a kill loses."""

_EXIT_SECONDS = 5.0


class _Job:
    """A trace to write, and whether it is the last of its settings, or the last of their count."""

    __slots__ = ("complete", "owner", "settings", "size", "trace", "used_up")

    def __init__(self, sampling: Sampling, trace: Trace | None, size: int) -> None:
        self.owner = sampling
        self.settings: TraceSettings = sampling.settings
        self.used_up = sampling.used_up
        self.complete = sampling.complete
        self.trace = trace
        self.size = size


class TraceWriter:
    """A sink of traces that writes them to trace files.

    `dropped` counts traces that found no room to wait. The log says which file cannot be
    written, once a minute at most; it is tried again with the next trace. So many traces may wait,
    with so many bytes of traced tensors.
    """

    def __init__(
        self, control: TraceControl, most_traces: int = 4096, most_bytes: int = 64 << 20
    ) -> None:
        self.dropped = 0
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = Lock()  # guards what waits: traces and their bytes
        self._most_traces = most_traces
        self._most_bytes = most_bytes
        self._traces = 0
        self._bytes = 0
        self._path = control.start.file
        self._files = TraceFiles(self._path)
        self._writer: Thread | None = None
        self._failed = LogThrottle()
        self._lost = LogThrottle()
        control.on_replaced(self._replaced)

    @property
    def waiting(self) -> int:
        """Traces that wait to be written."""
        return self._traces

    def submit(self, trace: Trace) -> None:
        """Take a trace; never waits."""
        sampling = trace.sampled_by
        assert isinstance(sampling, Sampling)
        sampling.end()
        size = sum(len(each.tensor.buffer) for line in trace.timelines for each in line.tensors)
        with self._lock:
            room = self._traces < self._most_traces and self._bytes + size <= self._most_bytes
            if room:
                self._traces += 1
                self._bytes += size
        if not room:
            self._drop()
            trace.forget()
        self._put(_Job(sampling, trace if room else None, size))

    def close(self) -> None:
        """Write what waits, for some seconds at most."""
        if self._writer is None:
            return
        self._jobs.put(None)
        self._writer.join(_EXIT_SECONDS)
        if self._writer.is_alive():
            logger.warning("the exit did not wait any longer for trace file '%s'", self._path)

    def _replaced(self, sampling: Sampling) -> None:
        sampling.retire()
        if sampling.complete:
            self._put(_Job(sampling, None, 0))

    def _put(self, job: _Job) -> None:
        if self._writer is None:
            self._writer = Thread(target=self._run, name="trace-file", daemon=True)
            self._writer.start()
        self._jobs.put(job)

    def _drop(self) -> None:
        self.dropped += 1
        if self._lost.add(time.monotonic()):
            logger.warning(
                "trace file '%s' is written too slowly, or a trace has more than 64 MiB of "
                "tensors; lost traces: %d",
                self._path,
                self.dropped,
            )

    # -- on the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        open_ends: dict[Sampling, TraceSettings] = {}
        closing = False
        while not closing:
            for job in self._next():
                if job is None:
                    closing = True
                    continue
                open_ends[job.owner] = job.settings
                self._attempt(self._write, job)
                if job.complete:
                    del open_ends[job.owner]
            self._attempt(self._files.flush)
        for owner, settings in open_ends.items():
            self._attempt(self._files.finish, owner, settings)
        self._attempt(self._files.flush)
        self._files.close()

    def _next(self) -> Iterator[_Job | None]:
        """Wait for a job, and a moment for others, which are written together."""
        first = self._jobs.get()
        yield first
        if first is not None:
            time.sleep(_GATHER_SECONDS)
        with suppress(Empty):
            while True:
                yield self._jobs.get_nowait()

    def _write(self, job: _Job) -> None:
        if job.trace is not None:
            try:
                self._files.add(job.owner, job.settings, trace_json(job.trace))
            finally:
                job.trace.forget()
                with self._lock:
                    self._traces -= 1
                    self._bytes -= job.size
        if job.used_up:
            self._files.use_up(job.owner)
        elif job.complete:
            self._files.finish(job.owner, job.settings)

    def _attempt(self, write: Callable[..., None], *arguments: object) -> None:
        """Write; what goes wrong is logged, and the traces are lost."""
        try:
            write(*arguments)
        except Exception as error:  # whatever it is, the thread goes on
            reason = error.strerror if isinstance(error, OSError) else repr(error)
            if self._failed.add(time.monotonic()):
                logger.error(
                    "trace file '%s' is not writable: %s; failed writes: %d. "
                    "Requests are served all the same",
                    self._path,
                    reason,
                    self._failed.count,
                )
