"""Endpoints of an in-process server, and scripts for Triton's packages."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import penstock.in_process as tritonserver
from harness.outcomes import raises_nothing
from penstock.core.exit_deadline import ExitDeadline
from penstock.in_process.frontend import KServeGrpc, KServeHttp, Metrics
from penstock.server.server import InferenceServer
from penstock_client.client import Client, NoServerError

_HERE = Path(__file__).parent


@pytest.mark.contract("API-10")
@pytest.mark.slow
async def test_endpoints_serve_until_they_are_stopped(server: tritonserver.Server) -> None:
    http = KServeHttp(server, KServeHttp.Options(address="127.0.0.1", port=0))
    with KServeGrpc(server, KServeGrpc.Options(address="127.0.0.1", port=0)) as grpc:
        http.start()
        async with Client(f"localhost:{grpc.port}", f"http://127.0.0.1:{http.port}") as client:
            results = [await client.infer("copy", {"SMALL": n}) for n in range(4)]
            assert [int(result["SMALL"][0, 0]) for result in results] == [0, 1, 2, 3]
            with pytest.raises(tritonserver.AlreadyExistsError, match="already running"):
                http.start()
            http.stop()
            http.stop()
            assert await client.live()
    async with Client(f"127.0.0.1:{grpc.port}") as client:
        with pytest.raises(NoServerError):
            await client.live()
    assert server.ready()


@pytest.mark.contract("API-10")
def test_metrics_have_an_endpoint(server: tritonserver.Server) -> None:
    with Metrics(server, Metrics.Options(address="127.0.0.1", port=0)) as metrics:
        url = f"http://127.0.0.1:{metrics.port}/metrics"
        with urllib.request.urlopen(url, timeout=20) as page:
            assert b"nv_inference_count" in page.read()


@pytest.mark.contract("API-10")
@pytest.mark.parametrize("endpoint", [KServeHttp, KServeGrpc, Metrics])
def test_an_endpoint_listens_on_its_address_alone_and_on_any_port(
    server: tritonserver.Server, endpoint: Any
) -> None:
    with endpoint(server, endpoint.Options(address="127.0.0.1", port=0)) as opened:
        assert opened.port != endpoint.Options().port
        socket.create_connection(("127.0.0.1", opened.port), 20).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", opened.port), 20)


@pytest.mark.contract("API-10")
@pytest.mark.parametrize("endpoint", [KServeHttp, KServeGrpc])
def test_endpoints_may_share_a_port(server: tritonserver.Server, endpoint: Any) -> None:
    def opened(port: int, reuse_port: bool = True) -> Any:
        options = endpoint.Options(address="127.0.0.1", port=port, reuse_port=reuse_port)
        return endpoint(server, options)

    with opened(0) as first, opened(first.port) as second:
        assert second.port == first.port
        with pytest.raises(tritonserver.TritonError, match="in use"):
            opened(first.port, reuse_port=False).start()


@pytest.mark.contract("API-10")
def test_what_is_wrong_with_endpoints_is_said(server: tritonserver.Server) -> None:
    with pytest.raises(tritonserver.InvalidArgumentError, match=r"KServeHttp\.Options"):
        KServeHttp(server, Metrics.Options())
    with pytest.raises(tritonserver.InvalidArgumentError, match="not started"):
        KServeHttp(tritonserver.Server(), KServeHttp.Options())
    for wrong in ({"port": -1}, {"port": 65536}, {"port": "x"}, {"infer_compression_level": 9}):
        with pytest.raises(ValueError, match="must be a number"):
            KServeGrpc.Options(**wrong)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(tritonserver.TritonError, match="failed to start HTTP service"):
            KServeHttp(server, KServeHttp.Options(address="127.0.0.1", port=port)).start()


def test_a_servers_stop_closes_its_endpoints(tmp_path: Path) -> None:
    server = tritonserver.Server(model_repository=str(tmp_path)).start()
    http = KServeHttp.Server(server, KServeHttp.Options(address="127.0.0.1", port=0))
    http.start()
    server.stop()
    http.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", http.port)).close()


def test_endpoints_are_closed_before_the_core_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else clients would be refused by a server that is half gone, instead of by its port."""
    server = tritonserver.Server(model_repository=str(tmp_path)).start()
    http = KServeHttp(server, KServeHttp.Options(address="127.0.0.1", port=0))
    http.start()
    open_at_its_end: list[bool] = []

    def refuse(core: InferenceServer, deadline: ExitDeadline) -> None:
        with socket.socket() as client:
            open_at_its_end.append(client.connect_ex(("127.0.0.1", http.port)) == 0)

    monkeypatch.setattr(InferenceServer, "refuse_new_work", refuse)
    server.stop()
    assert open_at_its_end == [False]


def test_an_endpoint_that_stops_takes_no_time_from_its_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has all of its `exit_timeout` when it stops later."""
    for name in ("a", "b"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "config.pbtxt").write_text('backend: "identity"')
    server = tritonserver.Server(model_repository=str(tmp_path), exit_timeout=1).start()
    with KServeHttp(server, KServeHttp.Options(address="127.0.0.1", port=0)):
        pass
    clock = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() + 60)
    with raises_nothing():
        server.stop()


@pytest.mark.slow
@pytest.mark.contract(*(f"API-{number:02d}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 13)))
def test_scripts_for_tritons_packages_run(tmp_path: Path) -> None:
    """With the calls of upstream's own examples and tests, and its errors."""
    version = tmp_path / "every_type" / "1"
    version.mkdir(parents=True)
    shutil.copyfile(_HERE / "every_type.py", version / "model.py")
    script = _HERE / "upstream_calls.py"
    command = [sys.executable, "-m", "penstock.in_process", str(script), str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    groups = "start_errors tensors views requests parameters queues coroutines streams metrics"
    assert ran.stdout.split("\n")[:-1] == [
        f"ok {name}" for name in f"{groups} endpoint_options endpoints stopped".split()
    ]


@pytest.mark.slow
@pytest.mark.contract("API-01")
def test_a_script_that_does_not_stop_its_server_ends(repository: Path, tmp_path: Path) -> None:
    start = "import sys, tritonserver; server = tritonserver.Server(model_repository=sys.argv[1])"
    kept = "server.start(); kept = [server]; kept.append(kept); print(server.ready())"
    (tmp_path / "script.py").write_text(f"{start}\n{kept}\n")
    command = [sys.executable, "-m", "penstock.in_process", str(tmp_path / "script.py")]
    ran = subprocess.run(
        [*command, str(repository)], capture_output=True, text=True, timeout=100, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "True\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--help"], ["/no/such/file.py"]])
def test_a_script_must_be_named(words: list[str]) -> None:
    command = [sys.executable, "-m", "penstock.in_process", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "penstock.in_process" in ran.stderr


@pytest.fixture
def unnamed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Neither name is imported, before and after."""
    for name in ("tritonserver", "tritonfrontend"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield monkeypatch
    for name in ("tritonserver", "tritonfrontend"):
        sys.modules.pop(name, None)


def test_names_can_be_installed(unnamed: Any) -> None:
    tritonserver.install()
    tritonserver.install()
    assert sys.modules["tritonserver"] is tritonserver
    assert sys.modules["tritonfrontend"].KServeHttp is KServeHttp
    sys.modules["tritonserver"] = ModuleType("tritonserver")
    with pytest.raises(ImportError, match="is imported already"):
        tritonserver.install()
