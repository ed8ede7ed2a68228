"""A real server for tests: `penstock serve` in a process of its own, on ports of its choice."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.processes import processes_below, thread_files

PROGRAM: Sequence[str] = ("-m", "penstock")
"""The program that Python runs unless a test has another."""

_STARTED = re.compile(r"Started (GRPCInferenceService|HTTPService|Metrics Service) at \S+:(\d+)")
_NAMES = {"GRPCInferenceService": "grpc", "HTTPService": "http", "Metrics Service": "metrics"}


@dataclass(frozen=True, slots=True)
class Served:
    """A server that is ready: its process, where it listens, and where its log is."""

    process: subprocess.Popen[bytes]
    ports: dict[str, int]
    log: Path

    @property
    def grpc(self) -> str:
        return f"127.0.0.1:{self.ports['grpc']}"

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self.ports['http']}"

    @property
    def metrics(self) -> str:
        return f"http://127.0.0.1:{self.ports['metrics']}/metrics"

    def family(self) -> list[int]:
        """The processes below the server."""
        return processes_below(self.process.pid)

    def stop(self, number: int = signal.SIGTERM, timeout: float = 40.0) -> int:
        """Send a signal; the exit status."""
        self.process.send_signal(number)
        return self.process.wait(timeout)


@contextmanager
def serving(
    repository: Path | None,
    log: Path,
    *arguments: str,
    timeout: float = 220.0,  # sooner than the limit of a fixture, to show its log
    errors: Path | None = None,
    program: Sequence[str] = PROGRAM,
) -> Iterator[Served]:
    """`penstock serve`, ready; ended with SIGTERM if the test has not done so."""
    process = start(repository, log, *arguments, errors=errors, program=program)
    files = [Path(each.partition("=")[2]) for each in arguments if each.startswith("--log-file=")]
    if files:
        files[0].touch()
    try:
        yield Served(process, _wait_for_ports(process, (*files, log)[0], timeout), log)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def start(
    repository: Path | None,
    log: Path,
    *arguments: str,
    errors: Path | None = None,
    program: Sequence[str] = PROGRAM,
) -> subprocess.Popen[bytes]:
    """`penstock serve`, just started; its output goes to `log`, its standard error to `errors`."""
    command = [sys.executable, *program, "serve"]
    if repository is not None:
        command.append(f"--model-repository={repository}")
    command += ["--grpc-port=0", "--http-port=0", "--metrics-port=0", *arguments]
    with log.open("wb") as output, (errors or Path(os.devnull)).open("wb") as other:
        stderr = other if errors else subprocess.STDOUT
        return subprocess.Popen(command, stdout=output, stderr=stderr)


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def suspend(pid: int) -> None:
    """Stop a process by SIGSTOP; returns when no thread of it runs any more."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _states(pid) == {"T"})


def _states(pid: int) -> set[str]:
    return {stat.rpartition(")")[2].split()[0] for stat in thread_files(pid, "stat")}


def wait_until(condition: Callable[[], bool], timeout: float = 60.0) -> None:
    """Wait for a condition that no event announces; fails the test when it does not come."""
    end = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < end, "the condition did not come true in time"
        time.sleep(0.02)


def _wait_for_ports(process: subprocess.Popen[bytes], log: Path, timeout: float) -> dict[str, int]:
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        found = {_NAMES[name]: int(port) for name, port in _STARTED.findall(log.read_text())}
        if len(found) == len(_NAMES):
            return found
        assert process.poll() is None, f"the server ended:\n{log.read_text()}"
        time.sleep(0.05)
    raise AssertionError(f"the server did not start in time:\n{log.read_text()}")
