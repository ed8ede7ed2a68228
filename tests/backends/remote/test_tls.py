"""Remote models over TLS, by both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.remote.far_server import ECHO, add_model, entry
from backends.remote.test_served import TEXT, TEXT_CONFIG
from harness.serving import Served, serving
from penstock.core.errors import ModelLoadError
from penstock.testing import running
from penstock_backends.remote import RemoteBackend
from rpc.certificates import needs_openssl, write_certificates

pytestmark = [needs_openssl, pytest.mark.slow]


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Path]]:
    """A server with TLS on both ports, and the folder of its certificates."""
    folder = tmp_path_factory.mktemp("tls")
    files = write_certificates(folder)
    add_model(folder / "far", "echo", ECHO)
    add_model(folder / "far", "shout", TEXT_CONFIG, TEXT)
    tls = [
        f"--{protocol}-{name}"
        for protocol in ("http", "grpc")
        for name in (
            "use-ssl=true",
            f"server-cert={files / 'server.pem'}",
            f"server-key={files / 'server.key'}",
        )
    ]
    with serving(folder / "far", folder / "log", *tls) as served:
        yield served, files


def remote(name: str, address: str, tmp_path: Path, **parameters: str) -> Any:
    return running(RemoteBackend, entry(name, address, **parameters), tmp_path)


async def test_tensors_over_grpcs(encrypted: tuple[Served, Path], tmp_path: Path) -> None:
    served, files = encrypted
    address = f"grpcs://localhost:{served.ports['grpc']}"
    given = np.ones((1, 300_000), np.float32)
    async with remote("echo", address, tmp_path, ca_file=str(files / "root.pem")) as instance:
        [found] = [one async for one in instance.infer({"IN": given})]
    assert np.array_equal(found.outputs["OUT"].numpy(), given)


async def test_text_over_https(encrypted: tuple[Served, Path], tmp_path: Path) -> None:
    served, files = encrypted
    address = f"https://localhost:{served.ports['http']}/v1"
    given = {"ca_file": str(files / "root.pem"), "chat": "true"}
    async with remote("shout", address, tmp_path, **given) as instance:
        assert instance.backend.unready() == ""
        [found] = [one async for one in instance.infer({"text_input": "hello"})]
    assert b"HELLO" in found.outputs["text_output"].elements()[0]


async def test_certificate_that_is_not_trusted_is_named(
    encrypted: tuple[Served, Path], tmp_path: Path
) -> None:
    served, _ = encrypted
    address = f"grpcs://localhost:{served.ports['grpc']}"
    with pytest.raises(ModelLoadError, match="its certificate is not trusted: "):
        async with remote("echo", address, tmp_path):
            pass
    async with remote(
        "shout", f"https://localhost:{served.ports['http']}/v1", tmp_path
    ) as instance:
        assert "its certificate is not trusted" in instance.backend.unready()


async def test_server_without_tls_is_no_server_with_it(
    encrypted: tuple[Served, Path], tmp_path: Path
) -> None:
    served, _ = encrypted
    address = f"grpc://localhost:{served.ports['grpc']}"
    with pytest.raises(ModelLoadError, match="declare 'input'"):
        async with remote("echo", address, tmp_path, connect_timeout_ms="2000"):
            pass
