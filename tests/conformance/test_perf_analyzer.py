"""Triton's perf_analyzer against this server, in its modes: it finds what it asks for.

`make tools` installs it. The modes are those of `loadtest.tools.perf_analyzer`, which prints them.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest
import tritonclient.grpc as grpcclient
from loadtest.tools import perf_analyzer
from loadtest.tools.perf_analyzer import MODES, PROFILE, Places

from harness.serving import Served, serving
from programs.places import find

pytestmark = pytest.mark.needs(
    "perf_analyzer", "" if find("perf_analyzer") else "perf_analyzer is not installed: make tools"
)

_COMPUTE = ("Server Compute Input", "Server Compute Infer", "Server Compute Output")
_GRPC, _HTTP = "-i grpc -u {grpc}", "-i http -u {http}"
_WIRES = {
    "unary": f"{_GRPC} --concurrency-range=2",
    "async": f"{_GRPC} --concurrency-range=2 --async",
    "stream": f"{_GRPC} --concurrency-range=2 --async --streaming",
    "http": f"{_HTTP} --concurrency-range=2",
    "batch": f"{_GRPC} --concurrency-range=2 -b 4",
    "rate": f"{_GRPC} --request-rate-range=50",
}
_SHARED = "--shared-memory=system --output-shared-memory-size=64"
_WIRES |= {f"{name} shared": f"{_WIRES[name]} {_SHARED}" for name in ("unary", "stream", "http")}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("perf")
    models = perf_analyzer.write_models(directory / "models")
    trace = f"--trace-config=triton,file={directory / 'trace.json'}"
    with serving(models, directory / "log", "--allow-client-shm=true", trace) as served:
        yield served


@pytest.fixture(scope="module")
def places(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """Where the server is, one with TLS beside it, and files for both."""
    folder = tmp_path_factory.mktemp("files")
    perf_analyzer.write_inputs(folder)
    options = perf_analyzer.write_certificates(folder)
    models = perf_analyzer.write_models(folder / "models")
    with serving(models, folder / "log", *options) as secure:
        tls = f"localhost:{secure.ports['grpc']}"
        yield Places(server.grpc, server.http, server.metrics, tls, folder)


@pytest.mark.contract("PA-01", "PA-02", "PA-04", "PA-05", "PA-06", "PA-09", "PA-13", "PA-19")
@pytest.mark.contract("PA-20", "ST-10")
@pytest.mark.parametrize("wire", _WIRES)
def test_perf_analyzer_measures_both_sides(server: Served, places: Places, wire: str) -> None:
    """It exits well only with statistics that grow, and reports what they say."""
    report = perf_analyzer.run("identity", _WIRES[wire], places)
    assert report.status == 0, report.printed
    (row,) = report.table
    assert float(row["Inferences/Second"]) > 0
    assert float(row["Server Queue"]) > 0
    assert sum(float(row[column]) for column in _COMPUTE) > 0
    with grpcclient.InferenceServerClient(server.grpc) as client:
        assert not client.get_system_shared_memory_status().regions


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.contract(*mode.rows)] if mode.rows else [], id=name)
        for name, mode in MODES.items()
    ],
)
def test_perf_analyzer_ends_well_in_each_mode(places: Places, name: str) -> None:
    mode = MODES[name]
    report = perf_analyzer.run_mode(mode, places)
    print(report.printed)
    assert report.status == 0, report.printed
    assert bool(report.table) == mode.table
    assert all(float(row["Inferences/Second"]) > 0 for row in report.table)


@pytest.mark.contract("PA-15")
def test_perf_analyzer_sends_parameters(places: Places) -> None:
    report = perf_analyzer.run("identity", f"{_GRPC} --request-parameter=color:red:string", places)
    assert report.status == 0, report.printed


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
    assert "second, version: 1" in listed


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
