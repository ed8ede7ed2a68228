"""Servers to put a load on: a real one with small models, and one that fails as it is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.repeat_model import REPEAT
from harness.serving import Served, serving
from penstock_client.perf.command import run
from penstock_client.perf.server import GrpcServer
from penstock_client.perf.wire.endpoint import Endpoint
from perf.failing_server import FailingServer, failing_server

_IDENTITY = """\
backend: "identity"
max_batch_size: 8
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
_ANY = """\
backend: "identity"
input [ { name: "IN" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] } ]
"""
_SEQUENCE = """\
backend: "identity"
max_batch_size: 8
sequence_batching { max_sequence_idle_microseconds: 5000000 }
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""


def write_models(directory: Path) -> Path:
    """Models that answer at once, of fixed and of any size, one of sequences, one that streams."""
    models = {"identity": _IDENTITY, "any": _ANY, "sequence": _SEQUENCE, "repeat": REPEAT}
    for name, config in models.items():
        (directory / name / "1").mkdir(parents=True)
        (directory / name / "config.pbtxt").write_text(config)
    return directory


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`penstock serve` over these models."""
    directory = tmp_path_factory.mktemp("perf")
    models = write_models(directory / "models")
    with serving(models, directory / "log", "--allow-client-shm=true") as server:
        yield server


def requests_of(served: Served) -> int:
    """How many requests the server's `identity` has answered."""
    server = GrpcServer(Endpoint("127.0.0.1", served.ports["grpc"]), {})
    models = server.statistics()["model_stats"]
    return sum(int(m.get("inference_count", 0)) for m in models if m["name"] == "identity")


@pytest.fixture
def failing() -> Iterator[FailingServer]:
    """A server of grpcio whose model, `moody`, fails every second request."""
    with failing_server() as server:
        yield server


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command ended with, wrote and printed."""

    status: int
    results: Mapping[str, Any]
    printed: str

    @property
    def point(self) -> Mapping[str, Any]:
        """The figures of the first load."""
        found: Mapping[str, Any] = self.results["points"][0]
        return found


Perf = Callable[..., Ran]


@pytest.fixture
def perf(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Perf:
    """Runs `penstock perf`, for a short time unless it is told otherwise."""

    def perf(*words: str) -> Ran:
        file = tmp_path / "results.json"
        short = ["--duration", "0.3", "--warmup", "0.1", "--json", str(file)]
        status = run([*short, *words])
        results = json.loads(file.read_text()) if file.exists() else {}
        printed = capfd.readouterr()
        return Ran(status, results, printed.out + printed.err)

    return perf
