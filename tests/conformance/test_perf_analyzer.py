"""Triton's perf_analyzer against this server: it finds the statistics that it reads.

`make tools` installs it; `PERF_ANALYZER` names another one. Libraries that it needs may be in
`lib/` beside it.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import tritonclient.grpc as grpcclient

from harness.serving import Served, serving
from programs.places import find

_PROGRAM = find("perf_analyzer", "PERF_ANALYZER")

pytestmark = pytest.mark.needs(
    "perf_analyzer", "" if _PROGRAM else "perf_analyzer is not installed: make tools"
)

_CONFIG = """\
backend: "identity"
max_batch_size: 8
dynamic_batching { max_queue_delay_microseconds: 100 }
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 16 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 16 ] } ]
"""

_MODES = {
    "unary": ["-i", "grpc"],
    "async": ["-i", "grpc", "--async"],
    "stream": ["-i", "grpc", "--async", "--streaming"],
    "http": ["-i", "http"],
    "batch": ["-i", "grpc", "-b", "4"],
    "rate": ["-i", "grpc", "--request-rate-range=50"],
}
_SHARED = ["--shared-memory=system", "--output-shared-memory-size=64"]
_MODES |= {f"{name} shared": [*_MODES[name], *_SHARED] for name in ("unary", "stream", "http")}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("perf")
    (directory / "models" / "identity" / "1").mkdir(parents=True)
    (directory / "models" / "identity" / "config.pbtxt").write_text(_CONFIG)
    with serving(directory / "models", directory / "log", "--allow-client-shm=true") as served:
        yield served


@pytest.mark.contract("PA-01", "PA-02", "PA-04", "PA-05", "PA-06", "PA-09", "PA-13", "PA-19")
@pytest.mark.contract("PA-20", "ST-10")
@pytest.mark.parametrize("mode", _MODES)
def test_perf_analyzer_measures_both_sides(server: Served, mode: str, tmp_path: Path) -> None:
    """It exits well only with statistics that grow, and reports what they say."""
    load = [] if "rate" in mode else ["--concurrency-range=2"]
    row = _measured(server, [*_MODES[mode], *load], tmp_path)
    assert float(row["Inferences/Second"]) > 0
    assert float(row["Server Queue"]) > 0
    compute = ("Server Compute Input", "Server Compute Infer", "Server Compute Output")
    assert sum(float(row[column]) for column in compute) > 0
    with grpcclient.InferenceServerClient(server.grpc) as client:
        assert not client.get_system_shared_memory_status().regions


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(
            ["-i", "http", "--input-tensor-format=json", "--output-tensor-format=json"],
            id="json",
            marks=pytest.mark.contract("PA-14"),
        ),
        pytest.param(
            ["-i", "grpc", "--request-parameter=color:red:string"],
            id="parameter",
            marks=pytest.mark.contract("PA-15"),
        ),
        pytest.param(
            ["-i", "grpc", "--grpc-compression-algorithm=gzip"],
            id="compressed",
            marks=pytest.mark.contract("PA-16"),
        ),
    ],
)
def test_perf_analyzer_measures_requests_of_other_forms(
    server: Served, arguments: list[str], tmp_path: Path
) -> None:
    row = _measured(server, arguments, tmp_path)
    assert float(row["Inferences/Second"]) > 0


@pytest.mark.contract("PA-21")
def test_perf_analyzer_exports_the_times_of_each_request(server: Served, tmp_path: Path) -> None:
    profile = tmp_path / "profile.json"
    _measured(server, ["-i", "grpc", f"--profile-export-file={profile}"], tmp_path)
    (experiment,) = json.loads(profile.read_text())["experiments"]
    assert {len(request["response_timestamps"]) for request in experiment["requests"]} == {1}


def _measured(server: Served, arguments: list[str], folder: Path) -> dict[str, str]:
    """The rows of perf_analyzer's table after a short measurement."""
    table = folder / "table.csv"
    target = server.http if "http" in arguments else server.grpc
    window = ["--measurement-interval=300", "--max-trials=3", "--stability-percentage=999"]
    ran = _run(["-m", "identity", "-u", target, *arguments, *window, "-f", str(table)])
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (row,) = csv.DictReader(table.read_text().splitlines())
    return row


def _run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    path = f"{Path(_PROGRAM).resolve().parent / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    environment = {**os.environ, "LD_LIBRARY_PATH": path}
    return subprocess.run(
        [_PROGRAM, *arguments], env=environment, capture_output=True, text=True, timeout=120
    )
