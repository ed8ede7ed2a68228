"""Fleets on Ray: Envoy over endpoint files, and where Ray is installed, whole clusters."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from deploy.observability.programs import answers, port
from deployment.proxies import PROXIES, missing
from harness.client_models import write_client_models
from harness.serving import wait_until
from penstock.ray.endpoints import Endpoint, EndpointFiles
from penstock.ray.server_process import ServerProcess
from penstock_client.client import Client
from programs.places import find

_ROOT = Path(__file__).parents[2]
_RAY = _ROOT / ".venv-ray" / "bin" / "python"
_needs_ray = pytest.mark.needs(
    "ray", missing("envoy") if _RAY.exists() else "there is no .venv-ray: `make ray` makes it"
)

pytestmark = pytest.mark.slow


@contextmanager
def _envoy(folder: Path) -> Iterator[tuple[str, str]]:
    """Envoy over the endpoint files in a folder; its addresses of HTTP and gRPC."""
    http, grpc = port("", 0), port("", 0)
    text = (PROXIES / "envoy-ray.yaml").read_text().replace("/etc/envoy/penstock", str(folder))
    for wanted, chosen in ((8000, http), (8001, grpc)):
        address = "address: {}, port_value: {}"
        text = text.replace(address.format("0.0.0.0", wanted), address.format("127.0.0.1", chosen))
    file = folder / "envoy.yaml"
    file.write_text(text)
    command = [find("envoy"), "-c", str(file), "--concurrency", "1", "--use-dynamic-base-id"]
    with (folder / "envoy.log").open("wb") as log:
        process = subprocess.Popen([*command, "--log-level", "warning"], stdout=log, stderr=log)
    try:
        wait_until(lambda: process.poll() is not None or answers(f"http://127.0.0.1:{http}/v2"))
        assert process.poll() is None, (folder / "envoy.log").read_text()
        yield f"http://127.0.0.1:{http}", f"127.0.0.1:{grpc}"
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[list[Endpoint]]:
    """Two servers, of which each has a model of its own, and both have `story`."""
    models = write_client_models(tmp_path / "models")
    endpoints = []
    async with AsyncExitStack() as stack:
        for name, model in (("replica-1", "copy"), ("replica-2", "length")):
            loaded = ("--model-control-mode=explicit", f"--load-model={model}")
            process = ServerProcess(
                [f"--model-repository={models}", *loaded, "--load-model=story", f"--id={name}"]
            )
            stack.push_async_callback(process.stop, 20.0)
            address = await process.start()
            report = await process.report()
            endpoints.append(
                Endpoint(name, address.host, address.grpc, address.http, report.models)
            )
        yield endpoints


@pytest.mark.needs("envoy", missing("envoy"))
async def test_requests_go_to_a_replica_that_has_loaded_their_model(
    two: list[Endpoint], tmp_path: Path
) -> None:
    """Over HTTP by the path, over gRPC by a header; each would fail on the other replica."""
    EndpointFiles(tmp_path).write(two)
    with _envoy(tmp_path) as (http, grpc):
        async with Client(http) as over_http:
            for number in range(10):
                result = await over_http.infer("copy", {"SMALL": [[number]]})
                assert result["SMALL"].tolist() == [[number]]
                length = await over_http.infer("length", {"TEXT": ["four"]})
                assert length["VECTOR"].tolist() == [4.0, 1.0]
        for model, name in (("copy", "replica-1"), ("length", "replica-2")):
            assert {await _name(grpc, model) for _ in range(10)} == {name}
        assert {await _name(grpc, "story") for _ in range(40)} == {"replica-1", "replica-2"}
        assert await _name(grpc, "nothing") in ("replica-1", "replica-2")


async def _name(grpc: str, model: str) -> str:
    """The replica that a call with this model in its metadata reaches."""
    import tritonclient.grpc.aio as grpcclient

    async with grpcclient.InferenceServerClient(grpc) as client:
        name: str = (await client.get_server_metadata(headers={"x-model": model})).name
    return name


@pytest.mark.needs("envoy", missing("envoy"))
async def test_replica_that_drains_gets_nothing_new_and_ends_its_streams(
    two: list[Endpoint], tmp_path: Path
) -> None:
    files = EndpointFiles(tmp_path)
    files.write(two)
    with _envoy(tmp_path) as (_, grpc):
        async with Client(grpc) as client, AsyncExitStack() as stack:
            notes = [tmp_path / f"note-{number}" for number in range(8)]
            streams = [
                await stack.enter_async_context(
                    aclosing(client.generate("story", "a ", max_tokens=1, note=str(note)))
                )
                for note in notes
            ]
            for stream in streams:
                assert await anext(stream) == "a 0 "
            files.write([replace(two[0], draining=True), two[1]])
            seen = {"replica-1"}
            while seen != {"replica-2"}:
                seen = {await _name(grpc, "story") for _ in range(10)}
            files.write([two[1]])
            assert {await _name(grpc, "story") for _ in range(20)} == {"replica-2"}
            assert [note for note in notes if note.exists()] == []


@_needs_ray
@pytest.mark.time_limit(900)
def test_fleet_under_load_loses_nothing(tmp_path: Path) -> None:
    """1 to 3 to 1, a rolling update, changes, a node killed, a node without the models."""
    rows = _scenario("ray_faults", tmp_path)
    assert [(row["wrong"], row["lost"]) for row in rows] == [(0.0, 0.0)] * 6
    assert all(float(str(row["calls"])) > 0 for row in rows)


@_needs_ray
@pytest.mark.time_limit(600)
def test_serve_hands_on_calls_and_streams(tmp_path: Path) -> None:
    rows = _scenario("ray_serve", tmp_path)
    assert [row for row in rows if row["right"] != "yes"] == []
    assert len(rows) > 10


def _scenario(name: str, folder: Path) -> list[dict[str, object]]:
    figures = folder / "figures.json"
    command = [str(_RAY), "-m", f"loadtest.scenarios.{name}", f"--json={figures}"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    rows: list[dict[str, object]] = json.loads(figures.read_text())["rows"]
    return rows
