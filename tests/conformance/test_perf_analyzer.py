"""Triton's perf_analyzer against this server, in its modes: it finds what it asks for.

`make tools` installs it. The modes are those of `loadtest.tools.perf_analyzer`, which prints them.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import tritonclient.grpc as grpcclient
from loadtest.tools import analyzer_files, perf_analyzer
from loadtest.tools.analyzer_modes import (
    BOTH_SIDES,
    MODES,
    PROFILE,
    SECURE_GRPC,
    Mode,
    Places,
    Secure,
)

from harness.serving import Served, serving
from programs.places import find

pytestmark = pytest.mark.needs(
    "perf_analyzer", "" if find("perf_analyzer") else "perf_analyzer is not installed: make tools"
)

_COMPUTE = ("Server Compute Input", "Server Compute Infer", "Server Compute Output")
_PERCENTILES = ("p50 latency", "p90 latency", "p95 latency", "p99 latency")
_TIMES = ("Client Send", "Network+Server Send/Recv", "Server Queue", *_COMPUTE, "Client Recv")
_GRPC = "-i grpc -u {grpc}"
_LATENCY = re.compile(
    r"Avg request latency: (\d+) usec \(overhead (\d+) usec \+ queue (\d+) usec"
    r" \+ compute input (\d+) usec \+ compute infer (\d+) usec \+ compute output (\d+) usec\)"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("perf")
    models = analyzer_files.write_models(directory / "models")
    options = [
        f"--trace-config=triton,file={directory / 'trace.json'}",
        "--allow-trace-control=true",
    ]
    with serving(models, directory / "log", "--allow-client-shm=true", *options) as served:
        yield served


@pytest.fixture(scope="module")
def places(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """Where the server is, two with TLS beside it, and files for all."""
    folder = tmp_path_factory.mktemp("files")
    analyzer_files.write_inputs(folder)
    analyzer_files.write_certificates(folder)
    models = analyzer_files.write_secure_model(folder / "models")
    tls, mutual = (analyzer_files.tls_options(folder, mutual=each) for each in (False, True))
    with (
        serving(models, folder / "tls.log", *tls) as secure,
        serving(models, folder / "mutual.log", *mutual) as strict,
    ):
        ports = (server.grpc, server.http, server.metrics)
        yield Places(*ports, _secure(secure), _secure(strict), folder)


def _secure(served: Served) -> Secure:
    ports = served.ports
    return Secure(
        f"localhost:{ports['grpc']}", f"https://localhost:{ports['http']}", served.metrics
    )


def _cases(modes: Mapping[str, Mode]) -> list[Any]:
    """The modes by name, with the rows of the contract that they show."""
    return [
        pytest.param(name, marks=[pytest.mark.contract(*mode.rows)] if mode.rows else [], id=name)
        for name, mode in modes.items()
    ]


@pytest.mark.parametrize("name", _cases(BOTH_SIDES))
def test_perf_analyzer_measures_both_sides(server: Served, places: Places, name: str) -> None:
    """It exits well only with statistics that grow, and reports what they say."""
    report = perf_analyzer.run_mode(MODES[name], places)
    assert report.status == 0, report.printed
    (row,) = report.table
    assert float(row["Inferences/Second"]) > 0
    assert float(row["Server Queue"]) > 0
    assert sum(float(row[column]) for column in _COMPUTE) > 0
    load = "Request Rate" if "rate" in name else "Concurrency"
    assert list(row) == [load, "Inferences/Second", *_TIMES, *_PERCENTILES]
    assert min(float(row[column]) for column in _TIMES) >= 0
    latencies = [float(row[column]) for column in _PERCENTILES]
    assert 0 < latencies[0] <= latencies[1] <= latencies[2] <= latencies[3]
    with grpcclient.InferenceServerClient(server.grpc) as client:
        assert not client.get_system_shared_memory_status().regions


@pytest.mark.parametrize(
    "name", _cases({name: mode for name, mode in MODES.items() if name not in BOTH_SIDES})
)
def test_perf_analyzer_ends_well_in_each_mode(places: Places, name: str) -> None:
    mode = MODES[name]
    report = perf_analyzer.run_mode(mode, places)
    print(report.printed)
    assert report.status == 0, report.printed
    assert bool(report.table) == mode.table
    assert all(float(row["Inferences/Second"]) > 0 for row in report.table)


@pytest.mark.contract("PA-19")
def test_a_verbose_table_tells_the_time_of_marshalling_and_of_waiting(places: Places) -> None:
    report = perf_analyzer.run("identity", f"{_GRPC} --verbose-csv", places)
    (row,) = report.table
    columns = ["Concurrency", "Inferences/Second", *_TIMES, *_PERCENTILES]
    assert list(row) == [*columns, "Avg latency", "request/response", "response wait"]
    assert float(row["request/response"]) >= 0
    assert float(row["response wait"]) > 0


@pytest.mark.contract("PA-13")
def test_shared_memory_needs_the_permission_of_the_server(places: Places) -> None:
    report = perf_analyzer.run("identity", f"{SECURE_GRPC} --shared-memory=system", places)
    assert report.status != 0
    assert "Client shared memory is disabled" in report.printed


@pytest.mark.contract("PA-24")
def test_perf_analyzer_sees_outputs_that_are_not_as_expected(places: Places) -> None:
    report = perf_analyzer.run("identity", f"{_GRPC} --input-data={{folder}}/wrong.json", places)
    assert report.status != 0
    assert "doesn't match expected output" in report.printed


@pytest.mark.contract("PA-22", "PA-23")
@pytest.mark.parametrize("mode", ["ensemble", "composing models"])
def test_perf_analyzer_finds_the_statistics_of_composing_models(places: Places, mode: str) -> None:
    report = perf_analyzer.run_mode(MODES[mode], places)
    _, composing, listed = report.printed.partition("Composing models:")
    assert composing
    _, second, told = listed.partition("second, version: 1")
    assert second
    times = _LATENCY.search(told)
    assert times is not None, listed
    whole, *parts = map(int, times.groups())
    assert 0 < whole == pytest.approx(sum(parts), abs=len(parts))


@pytest.mark.contract("PA-21")
@pytest.mark.parametrize(
    ("model", "arguments", "responses"),
    [
        ("identity", _GRPC, 1),
        ("repeat", f"{_GRPC} --async --streaming --input-data={{folder}}/repeat.json", 4),
    ],
)
def test_perf_analyzer_exports_the_times_of_each_request(
    places: Places, model: str, arguments: str, responses: int
) -> None:
    """It asks a decoupled model for an empty last response, which counts."""
    export = f"--profile-export-file={{folder}}/{PROFILE}"
    report = perf_analyzer.run(model, f"{arguments} {export}", places)
    assert report.status == 0, report.printed
    (experiment,) = json.loads((places.folder / PROFILE).read_text())["experiments"]
    counts = {len(request["response_timestamps"]) for request in experiment["requests"]}
    assert responses in counts


def test_perf_analyzer_without_a_server_says_so(places: Places) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    report = perf_analyzer.run("identity", f"-i grpc -u {address}", places)
    assert report.status != 0
