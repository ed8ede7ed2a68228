"""Memory of a server's processes: the most that each has had, and an end to what takes too much."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from loadtest.process import family

MOST_MEMORY = 3 << 10  # MiB of the server, at which it is killed
_LOOK = 0.02


@dataclass(slots=True)
class MemoryGuard:
    """Kills a server that takes too much memory."""

    pid: int
    killed: bool = False
    _ended: Event = field(default_factory=Event)

    def start(self) -> MemoryGuard:
        Thread(target=self._watch, daemon=True).start()
        return self

    def stop(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK):
            if memory(self.pid) > MOST_MEMORY:
                self.killed = True
                with suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
                return


class Peaks:
    """How much more memory the processes of a server have had since this was made, at the most."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = {one: memory(one) for one in family(pid)}
        for one in self._before:
            with suppress(OSError):
                Path(f"/proc/{one}/clear_refs").write_text("5")

    @property
    def server(self) -> float:
        """MiB of the process that talks to clients, shared memory included."""
        return self._grown(self._pid)

    @property
    def models(self) -> float:
        """MiB of that process below it which has grown most."""
        return max((self._grown(pid) for pid in self._before if pid != self._pid), default=0.0)

    def _grown(self, pid: int) -> float:
        return max(memory(pid, "VmHWM") - self._before[pid], 0.0)


def memory(pid: int, what: str = "VmRSS") -> float:
    """A size in MiB from the status of a process; 0 if it is no more."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    found = [line for line in status.splitlines() if line.startswith(what)]
    return int(found[0].split()[1]) / 1024 if found else 0.0
