"""`Author`: somebody with a package of their own, in an environment that has Penstock."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_STARTED = re.compile(r"Started (GRPCInferenceService|HTTPService) at \S+:(\d+)")


@dataclass(frozen=True)
class Author:
    """Somebody who works in a folder, with an environment of their own."""

    folder: Path
    environment: Path

    @property
    def variables(self) -> dict[str, str]:
        """Those of a shell where the environment is activated."""
        foreign = ("PYTHON", "PYTEST_", "PENSTOCK_", "COV_")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        path = f"{self.environment / 'bin'}:{kept.get('PATH', '')}"
        return {**kept, "VIRTUAL_ENV": str(self.environment), "PATH": path}

    def run(self, commands: str) -> str:
        """What a shell prints that ends with the first command that fails."""
        line = ["bash", "-ec", commands]
        ran = subprocess.run(
            line, cwd=self.folder, env=self.variables, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    @contextmanager
    def serving(self, line: str, log: Path) -> Iterator[dict[str, int]]:
        """The ports, `grpc` and `http`, of a server that a line starts, on ports of its choice."""
        free = "--http-port=0 --grpc-port=0 --metrics-port=0"
        command = ["bash", "-c", f"exec {line.strip()} {free}"]
        with log.open("wb") as output:
            server = subprocess.Popen(
                command, cwd=self.folder, env=self.variables, stdout=output, stderr=output
            )
        try:
            yield _listening(server, log)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)


def _listening(server: subprocess.Popen[bytes], log: Path) -> dict[str, int]:
    names = {"GRPCInferenceService": "grpc", "HTTPService": "http"}
    while len(found := _STARTED.findall(log.read_text())) < len(names):
        try:
            server.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(f"the server has ended:\n{log.read_text()}")
    return {names[name]: int(port) for name, port in found}


def index_problem(folder: Path) -> str:
    """Why no package index is reachable; empty where one is. Downloads into the folder."""
    asking = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", str(folder), "hatchling"]
    asked = subprocess.run(asking, capture_output=True, text=True, check=False)
    return asked.stderr.strip().splitlines()[-1] if asked.returncode else ""
