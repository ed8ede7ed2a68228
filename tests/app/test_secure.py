"""A server that was started with `--secure`: who reaches it, and what it does for whom."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.python_models import write_python_model
from harness.serving import Served, serving
from penstock.settings.secure import GRPC_GROUPS, HTTP_GROUPS
from rpc.certificates import write_certificates

httpclient = pytest.importorskip("tritonclient.http", exc_type=ImportError)
grpcclient = pytest.importorskip("tritonclient.grpc", exc_type=ImportError)
utils = pytest.importorskip("tritonclient.utils", exc_type=ImportError)

pytestmark = pytest.mark.slow

_IDENTITY = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        outputs = ([pb_utils.Tensor("X", r.inputs()[0].as_numpy())] for r in requests)
        return [pb_utils.InferenceResponse(one) for one in outputs]
"""
_ADMIN = "model-repository,trace,logging:admin=secret"
_SECRET = {"admin": "secret"}
_GRPC_SECRET = {"triton-grpc-protocol-admin": "secret"}
_FILES = {"file:1/model.py": b"raise SystemExit"}


def _answer(module: Any, client: Any, headers: dict[str, str] | None = None) -> list[int]:
    """The answer of the model to a stock client."""
    given = module.InferInput("X", [1], "INT32")
    given.set_data_from_numpy(np.array([7], np.int32))
    found: list[int] = client.infer("identity", [given], headers=headers).as_numpy("X").tolist()
    return found


def _models(folder: Path) -> Path:
    return write_python_model(folder / "models", "identity", _IDENTITY).parent


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Listens on this machine alone; its repository, traces and log are for who has a secret."""
    folder = tmp_path_factory.mktemp("local")
    arguments = (
        "--secure",
        "--model-control-mode=explicit",
        "--load-model=identity",
        f"--http-restricted-api={_ADMIN}",
        f"--grpc-restricted-protocol={_ADMIN}",
    )
    with serving(_models(folder), folder / "log", *arguments) as server:
        yield server


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    """Listens on every address, with TLS; and the folder of its certificates."""
    folder = tmp_path_factory.mktemp("encrypted")
    files = write_certificates(folder)
    tls = [
        f"--{protocol}-{name}"
        for protocol in ("http", "grpc")
        for name in (
            "use-ssl=true",
            f"server-cert={files / 'server.pem'}",
            f"server-key={files / 'server.key'}",
            "address=0.0.0.0",
        )
    ]
    with serving(_models(folder), folder / "log", "--secure", *tls) as server:
        yield server, files


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Listens on every address without TLS: calls need a secret."""
    folder = tmp_path_factory.mktemp("guarded")
    http, grpc = ",".join(HTTP_GROUPS), ",".join(GRPC_GROUPS)
    secrets = f"--http-restricted-api={http}:k=v", f"--grpc-restricted-protocol={grpc}:k=v"
    arguments = "--secure", "--http-address=0.0.0.0", "--grpc-address=0.0.0.0", *secrets
    with serving(_models(folder), folder / "log", "--openai-port=0", *arguments) as server:
        yield server


def test_a_stock_client_is_served_over_loopback(local: Served) -> None:
    with httpclient.InferenceServerClient(local.http) as client:
        assert _answer(httpclient, client) == [7]
    with grpcclient.InferenceServerClient(local.grpc) as client:
        assert _answer(grpcclient, client) == [7]


@pytest.mark.parametrize("port", ["http", "grpc", "metrics"])
def test_ports_are_not_on_other_addresses(local: Served, port: str) -> None:
    """Every address of 127.0.0.0/8 is this machine's, and would answer a port on all of them."""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", local.ports[port]), timeout=10)


def test_who_knows_the_secret_loads_but_brings_no_files(local: Served) -> None:
    with grpcclient.InferenceServerClient(local.grpc) as client:
        client.load_model("identity", headers=_GRPC_SECRET)
        with pytest.raises(utils.InferenceServerException, match="started with --secure"):
            client.load_model("rogue", headers=_GRPC_SECRET, config="{}", files=_FILES)
    with httpclient.InferenceServerClient(local.http) as client:
        with pytest.raises(utils.InferenceServerException, match="started with --secure"):
            client.load_model("rogue", headers=_SECRET, config="{}", files=_FILES)
        assert client.is_model_ready("identity")


def test_who_knows_the_secret_reads_settings_and_changes_none(local: Served) -> None:
    with grpcclient.InferenceServerClient(local.grpc) as client:
        assert client.get_trace_settings(headers=_GRPC_SECRET)
        with pytest.raises(utils.InferenceServerException, match="started with --secure"):
            client.update_trace_settings(settings={"trace_rate": "1"}, headers=_GRPC_SECRET)
        with pytest.raises(utils.InferenceServerException, match="started with --secure"):
            client.update_log_settings({"log_error": False}, headers=_GRPC_SECRET)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/health/live", 200),
        ("GET", "/v2/models/identity", 200),
        ("GET", "/v2/models/identity/config", 403),
        ("GET", "/v2/models/stats", 403),
        ("POST", "/v2/models/identity/infer", 403),
        ("POST", "/v2/models/identity/generate", 403),
        ("POST", "/v2/repository/index", 403),
        ("POST", "/v2/models/identity/engine/sleep", 403),
        ("GET", "/v2/logging", 403),
        ("GET", "/v2/trace/setting", 403),
        ("GET", "/v2/systemsharedmemory/status", 403),
        ("GET", "/v1/models", 403),
        ("POST", "/v1/completions", 403),
        ("DELETE", "/v1/requests/1", 403),
        ("GET", "/docs", 404),
        ("GET", "/openapi.json", 404),
    ],
)
def test_a_stranger_gets_health_and_metadata_alone(
    guarded: Served, method: str, path: str, status: int
) -> None:
    assert httpx.request(method, f"http://{guarded.http}{path}", verify=False).status_code == status


@pytest.mark.parametrize(("path", "status"), [("/metrics", 403), ("/health/ready", 200)])
def test_openai_port_needs_the_secrets_too(guarded: Served, path: str, status: int) -> None:
    found = re.search(r"Started OpenAIService at 0\.0\.0\.0:(\d+)", guarded.log.read_text())
    assert found is not None
    assert httpx.get(f"http://127.0.0.1:{found[1]}{path}", verify=False).status_code == status


def test_a_stock_client_sends_the_secret_over_grpc(guarded: Served) -> None:
    with grpcclient.InferenceServerClient(guarded.grpc) as client:
        assert client.get_model_metadata("identity").name == "identity"
        with pytest.raises(utils.InferenceServerException, match="restricted"):
            _answer(grpcclient, client)
        assert _answer(grpcclient, client, {"triton-grpc-protocol-k": "v"}) == [7]


def test_a_stock_client_is_served_with_tls_on_every_address(
    encrypted: tuple[Served, Path],
) -> None:
    server, files = encrypted
    port, root = server.ports["grpc"], str(files / "root.pem")
    with grpcclient.InferenceServerClient(
        f"localhost:{port}", ssl=True, root_certificates=root
    ) as client:
        assert _answer(grpcclient, client) == [7]
    with httpclient.InferenceServerClient(
        f"localhost:{server.ports['http']}", ssl=True, ssl_options={"ca_certs": root}
    ) as client:
        assert _answer(httpclient, client) == [7]
    for name in ("http", "grpc"):
        socket.create_connection(("127.0.0.2", server.ports[name]), timeout=10).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", server.ports["metrics"]), timeout=10)
