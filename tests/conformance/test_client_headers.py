"""Headers and connections of Triton's clients, as a model behind a real server sees them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.grpc.auth as grpcauth
import tritonclient.http as httpclient
import tritonclient.http.auth as httpauth

from harness.serving import Served, serving

pytestmark = pytest.mark.slow

_CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_FP32 dims: 1 }
output { name: "SEEN" data_type: TYPE_STRING dims: 1 }
"""
_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        texts = [np.array([request.parameters().encode()], np.object_) for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SEEN", text)]) for text in texts]
"""
_PATTERN = "^(authorization|x-.*)$"
_BASIC = "Basic dXNlcjpwYXNz"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("headers")
    (folder / "models" / "seen" / "1").mkdir(parents=True)
    (folder / "models" / "seen" / "config.pbtxt").write_text(_CONFIG)
    (folder / "models" / "seen" / "1" / "model.py").write_text(_MODEL)
    flags = [f"--{name}-header-forward-pattern={_PATTERN}" for name in ("grpc", "http")]
    with serving(folder / "models", folder / "log", *flags) as served:
        yield served


def _seen(library: Any, client: Any, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """The parameters of a request, which the model tells."""
    tensor = library.InferInput("IN", [1], "FP32")
    tensor.set_data_from_numpy(np.zeros(1, np.float32))
    (text,) = client.infer("seen", [tensor], headers=headers).as_numpy("SEEN")
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.mark.contract("CC-06")
def test_plugins_add_headers_to_each_call(server: Served) -> None:
    with grpcclient.InferenceServerClient(server.grpc) as client:
        client.register_plugin(grpcauth.BasicAuth("user", "pass"))
        assert _seen(grpcclient, client)["authorization"] == _BASIC
        client.unregister_plugin()
        assert "authorization" not in _seen(grpcclient, client)
    with httpclient.InferenceServerClient(server.http) as client:
        client.register_plugin(httpauth.BasicAuth("user", "pass"))
        seen = {name.lower(): value for name, value in _seen(httpclient, client).items()}
        assert seen["authorization"] == _BASIC


@pytest.mark.contract("CC-14")
def test_names_are_lower_case_over_grpc_and_as_they_were_over_http(server: Served) -> None:
    headers = {"X-Team": "search"}
    with grpcclient.InferenceServerClient(server.grpc) as client:
        lowered = {name.lower(): value for name, value in headers.items()}
        assert _seen(grpcclient, client, lowered) == {"x-team": "search"}
    with httpclient.InferenceServerClient(server.http) as client:
        assert _seen(httpclient, client, headers) == {"X-Team": "search"}
        assert _seen(httpclient, client, {"x-TEAM": "search"}) == {"x-TEAM": "search"}


_DEFAULTS = {
    "keepalive_time_ms": 2**31 - 1,
    "keepalive_timeout_ms": 20_000,
    "keepalive_permit_without_calls": False,
    "http2_max_pings_without_data": 2,
}


@pytest.mark.contract("CC-05")
@pytest.mark.parametrize(
    "options",
    [
        None,
        grpcclient.KeepAliveOptions(),
        grpcclient.KeepAliveOptions(**_DEFAULTS),
        grpcclient.KeepAliveOptions(
            keepalive_time_ms=1_000,
            keepalive_timeout_ms=5_000,
            keepalive_permit_without_calls=True,
            http2_max_pings_without_data=0,
        ),
    ],
    ids=["none", "defaults", "the same by name", "eager"],
)
def test_clients_with_any_keepalive_are_answered(
    server: Served, options: grpcclient.KeepAliveOptions | None
) -> None:
    assert vars(grpcclient.KeepAliveOptions()) == _DEFAULTS
    with grpcclient.InferenceServerClient(server.grpc, keepalive_options=options) as client:
        assert [_seen(grpcclient, client) for _ in range(3)] == [{}] * 3
