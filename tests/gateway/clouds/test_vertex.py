"""The Vertex AI endpoint on a port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from gateway.clouds.binary_bodies import LARGE, large_body
from gateway.clouds.encrypted import statuses_over_tls
from gateway.serving import LOCAL, FakeServer
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.clouds.errors import EndpointStartError
from penstock.gateway.clouds.vertex import open_vertex
from penstock.server.answers import ModelIndexEntry
from penstock.settings import Feature, HttpSettings, Restriction
from rpc.certificates import needs_openssl, tls

_ROUTES = {"AIP_PREDICT_ROUTE": "/predict", "AIP_HEALTH_ROUTE": "/health"}
_BINARY = "application/vnd.vertex-ai-triton.binary+json;json-header-size="
_INFER = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [2]}]}


def _server(*names: str) -> FakeServer:
    server = FakeServer()
    server.entries = tuple(ModelIndexEntry(name, "1", "READY", "") for name in names)
    return server


async def _scrape(accept: str) -> tuple[bytes, str]:
    return b"up 1\n", "text/plain; charset=utf-8"


@asynccontextmanager
async def _opened(
    server: FakeServer,
    environment: Mapping[str, str] = _ROUTES,
    default: str = "",
    http: HttpSettings = LOCAL,
) -> AsyncIterator[httpx.AsyncClient]:
    opening = open_vertex(server, http, 0, default, environment, ExitDeadline(1), _scrape)
    async with (
        opening as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False) as client,
    ):
        yield client


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with _opened(_server("numbers")) as client:
        yield client


def _redirect(path: str) -> dict[str, str]:
    return {"X-Vertex-Ai-Triton-Redirect": path}


@pytest.mark.contract("CLD-05", "CLD-06")
async def test_predictions_are_those_of_the_only_model(client: httpx.AsyncClient) -> None:
    answer = await client.post("/predict", json=_INFER)
    assert answer.status_code == 200
    assert answer.json()["outputs"][0]["data"] == [2.0]


@pytest.mark.contract("CLD-05")
async def test_length_of_the_json_stands_in_the_content_type_and_in_its_header(
    client: httpx.AsyncClient,
) -> None:
    text = (
        b'{"inputs":[{"name":"IN","datatype":"FP32","shape":[2],"parameters":{"binary_data_size":8'
        b'}}],"outputs":[{"name":"OUT","parameters":{"binary_data":true}}]}'
    )
    values = np.array([1, 2], np.float32).tobytes()
    headers = {"content-type": f"{_BINARY}{len(text)}"}
    answer = await client.post("/predict", content=text + values, headers=headers)
    kind = answer.headers["content-type"]
    assert kind.startswith(_BINARY)
    assert answer.content[int(kind.removeprefix(_BINARY)) :] == values
    assert answer.headers["inference-header-content-length"] == kind.removeprefix(_BINARY)


@pytest.mark.contract("CLD-05")
async def test_large_tensors_are_received_into_memory_that_model_processes_map() -> None:
    body, headers = large_body(_BINARY)
    server = _server("numbers")
    async with _opened(server) as client:
        assert (await client.post("/predict", content=body, headers=headers)).status_code == 200
    received = server.requests[0].inputs["IN"]
    assert received.shared is not None
    assert received.numpy().tolist() == LARGE.tolist()


@pytest.mark.contract("CLD-05")
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (f"x {_BINARY}1", f"expect MIME type for binary data starts with '{_BINARY}', got: x "),
        (f"{_BINARY}-1", "inference header size should be in range (0, 2), got: -1"),
    ],
)
async def test_wrong_content_types_are_refused(
    client: httpx.AsyncClient, kind: str, text: str
) -> None:
    answer = await client.post("/predict", content=b"{}", headers={"content-type": kind})
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(text)


@pytest.mark.contract("CLD-05")
async def test_health_is_readiness(client: httpx.AsyncClient) -> None:
    assert (await client.get("/health")).status_code == 200
    assert (await client.post("/health")).status_code == 405


@pytest.mark.contract("CLD-05")
@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("v2", None, 200),
        ("v2/health/live", None, 200),
        ("v2/models/numbers", None, 200),
        ("v2/models/numbers/versions/1/config", None, 200),
        ("v2/models/numbers/stats", None, 200),
        ("v2/models/stats", None, 200),
        ("v2/models/numbers/ready", None, 200),
        ("v2/models/numbers/infer", _INFER, 200),
        ("v2/models/numbers/generate", {"IN": 1.0}, 200),
        ("metrics", None, 200),
        ("v2/systemsharedmemory/status", None, 403),
        ("v2/cudasharedmemory/region/r/register", {}, 403),
        ("v2/repository/index", {}, 403),
        ("v2/repository/models/numbers/load", {}, 403),
        ("elsewhere", None, 400),
    ],
)
async def test_header_names_another_call(
    client: httpx.AsyncClient, path: str, body: object, status: int
) -> None:
    """All are made with POST, whatever the other one takes."""
    answer = await client.post("/predict", json=body, headers=_redirect(path))
    assert answer.status_code == status


@pytest.mark.contract("CLD-05")
async def test_other_methods_and_paths_are_refused(client: httpx.AsyncClient) -> None:
    assert (await client.get("/predict", headers=_redirect("v2"))).status_code == 405
    assert (await client.post("/v2/models/numbers/infer", json=_INFER)).status_code == 400


@pytest.mark.parametrize(("key", "status"), [("x", 403), ("secret", 200)])
async def test_metrics_are_restricted_as_statistics_are(key: str, status: int) -> None:
    restriction = Restriction(frozenset({Feature.STATISTICS}), "Admin", "secret")
    http = replace(LOCAL, restrictions=(restriction,))
    async with _opened(_server("numbers"), http=http) as client:
        for path in ("metrics", "v2/models/stats"):
            headers = _redirect(path) | {"admin": key}
            assert (await client.post("/predict", headers=headers)).status_code == status


@needs_openssl
async def test_tls_and_certificates_of_clients_hold_here_too(certificates: Path) -> None:
    http = replace(LOCAL, tls=tls(certificates, mutual=True))
    async with _opened(_server("numbers"), http=http) as client:
        assert await statuses_over_tls(client, certificates, "/health") == (None, None, 200)


@pytest.mark.contract("CLD-06")
async def test_default_model_may_be_one_of_several() -> None:
    async with _opened(_server("numbers", "other"), default="numbers") as client:
        assert (await client.post("/predict", json=_INFER)).status_code == 200


@pytest.mark.contract("CLD-05", "CLD-06")
@pytest.mark.parametrize(
    ("names", "default", "environment", "text"),
    [
        (("a", "b"), "", _ROUTES, "Expect the model repository contains only a single model if"),
        ((), "", _ROUTES, "Expect the model repository contains only a single model if"),
        (("a",), "c", _ROUTES, "Expect the default model 'c' is loaded"),
        (("a",), "", {}, "AIP_PREDICT_ROUTE is not defined for Vertex AI endpoint"),
        (("a",), "", {"AIP_PREDICT_ROUTE": "/p"}, "AIP_HEALTH_ROUTE is not defined for Vertex AI"),
    ],
)
async def test_endpoint_without_use_does_not_start(
    names: tuple[str, ...], default: str, environment: dict[str, str], text: str
) -> None:
    with pytest.raises(EndpointStartError) as failed:
        async with _opened(_server(*names), environment, default):
            pass
    start = "failed to start Vertex AI service: Invalid argument - "
    assert str(failed.value).startswith(start + text)
