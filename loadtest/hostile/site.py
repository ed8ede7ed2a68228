"""`Site`: a server that lives while rows are tried on it, and those who watch it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from loadtest.hostile.bystander import Bystander, Waits
from loadtest.hostile.line import summed
from loadtest.hostile.row import MIB, Ports, Result, Row, Sizes, statuses
from loadtest.hostile.server_memory import MOST_MEMORY, MemoryGuard, Peaks, memory
from loadtest.process import cpu_seconds, free_ports

_FREE_MEMORY = 64.0  # MiB that each row may take beyond what is documented
_GROWN = 200.0  # MiB more than at the start, with which a server is replaced before the next row
_LOOK = 0.02
_SETTLING = 10.0
_ENDPOINTS = ("grpc", "http", "metrics", "openai", "sagemaker", "vertex")
_OPTIONS = [
    "--log-info=false",
    "--grpc-channelz=true",
    "--engine-rpc=vllm",
    "--allow-sagemaker=true",
    "--allow-vertex-ai=true",
    "--vertex-ai-default-model=simple",
]
_ENVIRONMENT = {
    "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "simple",
    "AIP_PREDICT_ROUTE": "/predict",
    "AIP_HEALTH_ROUTE": "/health",
}


@dataclass(slots=True)
class Site:
    """Starts servers of a checkout, and does to them what rows say.

    `rogues` is the repository of models that attack the server, which a row's options may name.
    """

    repository: Path
    rogues: Path
    log: Path
    python: str = sys.executable
    seconds: float = 20.0
    idle: float = 0.25  # seconds in which the idle stall is measured
    ports: dict[str, int] = field(default_factory=dict)
    _process: subprocess.Popen[bytes] | None = None
    _guard: MemoryGuard | None = None
    _options: tuple[str, ...] = ()
    _bystanders: dict[str, Bystander] = field(default_factory=dict)
    _fresh: float = 0.0

    def run(self, row: Row, sizes: Sizes) -> Result:
        """Try a row on a server that lives, and is not swollen by the rows before it."""
        attack = row.prepare(sizes)
        process, guard = self._ready(row)
        watching = self._bystander("health"), self._bystander(row.beside)
        idle, quiet = self._rest(watching, process.pid)
        peaks = Peaks(process.pid)
        for one in watching:
            one.begin()
        begun = time.monotonic()
        answers = attack.run(Ports(self.ports, self.python), self.seconds)
        took = time.monotonic() - begun
        died = self._settled(process, guard, quiet)
        health, beside = (_until_answered(one) for one in watching)
        result = Result(
            row,
            summed(answers),
            statuses(answers),
            max(health.milliseconds - idle, 0.0),
            max(beside.milliseconds - idle, 0.0),
            min(health.answered, beside.answered),
            health.failed + beside.failed,
            idle,
            took,
            MOST_MEMORY if guard.killed else peaks.server,
            peaks.models,
            _FREE_MEMORY + row.documented + attack.size / MIB,
            died,
        )
        if died:
            self.close()
        return result

    def close(self) -> None:
        """End the server, by force, and those who watch it."""
        for bystander in self._bystanders.values():
            bystander.stop()
        self._bystanders.clear()
        if self._guard is not None:
            self._guard.stop()
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None

    # -- the server -----------------------------------------------------------------------------

    def _ready(self, row: Row) -> tuple[subprocess.Popen[bytes], MemoryGuard]:
        process = self._process
        if (
            process is None
            or process.poll() is not None
            or row.options != self._options
            or memory(process.pid) > self._fresh + _GROWN
        ):
            self.close()
            self._start(row.options)
        assert self._process is not None
        assert self._guard is not None
        return self._process, self._guard

    def _start(self, options: tuple[str, ...]) -> None:
        self._options = options
        self.ports = dict(zip(_ENDPOINTS, free_ports(len(_ENDPOINTS)), strict=True))
        command = [self.python, "-m", "penstock", "serve", f"--model-repository={self.repository}"]
        command += [
            f"--{name if name != 'vertex' else 'vertex-ai'}-port={port}"
            for name, port in self.ports.items()
        ]
        environment = {**os.environ, **_ENVIRONMENT}
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, *_OPTIONS, *(one.format(rogues=self.rogues) for one in options)],
                stdout=output,
                stderr=output,
                env=environment,
                cwd=self.repository,
                start_new_session=True,
            )
        self._wait_until_ready(self._process)
        self._guard = MemoryGuard(self._process.pid).start()
        for what in ("health", "simple"):
            self._bystander(what)
        if (self.repository / "minilm").is_dir():  # what is made at first use is made then
            self._bystander("minilm")
            self._bystanders.pop("minilm").stop()
        self._fresh = memory(self._process.pid)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + 120
        url = f"http://127.0.0.1:{self.ports['http']}/v2/health/ready"
        while process.poll() is None and time.monotonic() < end:
            with suppress(OSError), urllib.request.urlopen(url, timeout=5):
                return
            time.sleep(0.05)
        raise SystemExit(f"the server is not ready:\n{self.log.read_text()[-3000:]}")

    def _bystander(self, what: str) -> Bystander:
        if what not in self._bystanders:
            started = self._bystanders[what] = Bystander.start(what, self.ports)
            _wait_until_answered(started)
        return self._bystanders[what]

    # -- watching -------------------------------------------------------------------------------

    def _rest(self, watching: Sequence[Bystander], pid: int) -> tuple[float, float]:
        """The longest wait on the idle server in milliseconds, and the CPU that it uses then."""
        for one in watching:
            one.begin()
        used = cpu_seconds(pid)
        time.sleep(self.idle)
        used = cpu_seconds(pid) - used
        return max(one.look().milliseconds for one in watching), used / self.idle

    def _settled(self, process: subprocess.Popen[bytes], guard: MemoryGuard, quiet: float) -> str:
        """Wait until the server has nothing to do any more; how it died, if it did."""
        end = time.monotonic() + _SETTLING
        while process.poll() is None and time.monotonic() < end:
            used = cpu_seconds(process.pid)
            time.sleep(0.05)
            with suppress(OSError):
                used = cpu_seconds(process.pid) - used
            if used / 0.05 < quiet * 1.5 + 0.1:
                break
        if guard.killed:
            return f"killed at {MOST_MEMORY} MiB"
        if process.poll() is not None:
            return f"died ({process.returncode})"
        return "" if self._lives() else "hangs"

    def _lives(self) -> bool:
        url = f"http://127.0.0.1:{self.ports['http']}/v2/health/live"
        try:
            with urllib.request.urlopen(url, timeout=5):
                return True
        except OSError:
            return False


def _wait_until_answered(bystander: Bystander) -> None:
    end = time.monotonic() + 60
    while not bystander.look().answered:
        if time.monotonic() > end or bystander.process.poll() is not None:
            raise SystemExit("a client beside the rows is not answered")
        time.sleep(0.02)


def _until_answered(bystander: Bystander) -> Waits:
    """What has happened to a bystander, with the call that it waits for, unless it takes long."""
    end, found = time.monotonic() + _SETTLING, bystander.look()
    while not found.answered and time.monotonic() < end:
        time.sleep(_LOOK)
        found = bystander.look()
    return found
