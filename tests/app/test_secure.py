"""A server that was started with `--secure`: who reaches it, and what it does for whom."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.python_models import write_python_model
from harness.serving import Served, serving
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


def _answer(module: Any, client: Any) -> list[int]:
    """What the model answers to a stock client."""
    given = module.InferInput("X", [1], "INT32")
    given.set_data_from_numpy(np.array([7], np.int32))
    found: list[int] = client.infer("identity", [given]).as_numpy("X").tolist()
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
