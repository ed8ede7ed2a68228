"""The server that measures a variant: `penstock serve`, in a process of its own."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from penstock_client.perf.load.processes import ending
from penstock_client.perf.server_side import processes_below
from penstock_client.perf.wire.endpoint import Endpoint
from penstock_client.reading.address import Address
from penstock_client.tune.control_calls import ControlCalls, as_json
from penstock_client.tune.errors import VariantError

_STARTED = re.compile(r"Started (GRPCInferenceService|HTTPService|Metrics Service) at \S+:(\d+)")
_NAMES = {"GRPCInferenceService": "grpc", "HTTPService": "http", "Metrics Service": "metrics"}
_HOST = "127.0.0.1"
_FLAGS = (
    "--model-control-mode=explicit",
    *(f"--{name}-port=0" for name in ("grpc", "http", "metrics")),
    *(f"--{name}-address={_HOST}" for name in ("grpc", "http", "metrics")),
)
_START_SECONDS = 120.0
_STOP_SECONDS = 30.0
_TAIL = 5
_PR_SET_PDEATHSIG = 1


class ModelServer:
    """A running server without models at first; a model is loaded into it."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, load_seconds: float) -> None:
        self._process = process
        self._log = log
        self._ports = self._wait_for_ports()
        self._calls = ControlCalls(self.endpoint("grpc"), self.check, load_seconds)
        self.memory_without_model = self.memory() or 0

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    @property
    def metrics(self) -> Address:
        """The address of its metrics page."""
        return Address(_HOST, self._ports["metrics"])

    def endpoint(self, name: str) -> Endpoint:
        """The endpoint of `grpc` or `http`."""
        return Endpoint(_HOST, self._ports[name])

    def load(self, model: str) -> None:
        """Load a model; raises `VariantError` with what the server says."""
        self._calls.load(model)

    def config(self, model: str) -> dict[str, Any]:
        """The model's configuration, completed by the server."""
        return as_json(self._calls.config(model))

    def check(self) -> None:
        """Raises `VariantError` if the server has ended."""
        if (status := self._process.poll()) is not None:
            raise VariantError(f"the server ended with {ending(status)}: {self._last_lines()}")

    def memory(self) -> int | None:
        """Bytes of memory of the server and its model processes, what they share counted once."""
        try:
            return sum(map(_own_memory, processes_below(self._process.pid)))
        except OSError:
            return None  # it has just ended, or one of its processes has

    def _wait_for_ports(self) -> dict[str, int]:
        end = time.monotonic() + _START_SECONDS
        while time.monotonic() < end:
            self.check()
            text = self._log.read_text("utf-8", "replace")
            found = {_NAMES[name]: int(port) for name, port in _STARTED.findall(text)}
            if len(found) == len(_NAMES):
                return found
            time.sleep(0.02)
        raise VariantError(f"the server did not start within {_START_SECONDS:g} s")

    def _last_lines(self) -> str:
        lines = self._log.read_text("utf-8", "replace").strip().splitlines()
        return " | ".join(lines[-_TAIL:]) or "it wrote nothing"


@contextmanager
def serving(
    repository: Path,
    log: Path,
    flags: Sequence[str],
    environment: Mapping[str, str],
    load_seconds: float,
) -> Iterator[ModelServer]:
    """A server over a repository; raises `VariantError` if it does not start."""
    command = [sys.executable, "-m", "penstock", "serve", f"--model-repository={repository}"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, *_FLAGS, *flags],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,  # Ctrl-C is for the search, which ends the server itself
            preexec_fn=_die_with_parent,
        )
    try:
        yield ModelServer(process, log, load_seconds)
    finally:
        _stop(process)


def _die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it is gone; Linux only."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _own_memory(pid: int) -> int:
    """Bytes of a process; pages that several share count for each in part.

    Of the server, which hides, only root is told that; for others they count in full.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except PermissionError:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
