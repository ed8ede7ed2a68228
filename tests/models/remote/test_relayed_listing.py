"""The relay between `obstore` and a store whose keys it refuses."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from harness.object_store import ObjectStore
from models.remote.opening import address_of, remote, variables_of


@pytest.mark.parametrize("scheme", ["gs", "as"])
def test_what_asks_the_relay_passes_no_proxy(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    """A proxy could not reach it, and would see the credentials."""
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.setenv("NO_PROXY", "localhost")
        monkeypatch.setenv("no_proxy", "localhost")
        store.put("m/1/x", "x")
        store.put("../y", "y")
        asked = {
            name: value.replace("127.0.0.1", "localhost")
            for name, value in variables_of(store).items()
        }
        with remote(tmp_path, 0, **asked) as repositories:
            assert repositories.open(address_of(store, scheme)).folders() == ["m"]
        proxy.setblocking(False)
        with pytest.raises(BlockingIOError):
            proxy.accept()
