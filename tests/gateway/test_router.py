"""The router: paths, methods, restrictions and errors."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from gateway.serving import FakeServer, connected
from penstock.core.errors import AlreadyExistsError, InferenceError, ModelLoadError, error_from_code
from penstock.core.exit_deadline import ExitDeadline
from penstock.core.log.verbosity import VERBOSITY
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.connections.listener import listening
from penstock.gateway.replies import PLAIN, Reply, http_status, reply
from penstock.gateway.router import Route, Router, Target
from penstock.settings import Feature, HttpSettings, Restriction


async def _echo(_: HttpCall, target: Target) -> Reply:
    return reply(f"{target.model}|{target.version}".encode())


async def _break(_: HttpCall, __: Target) -> Reply:
    raise ValueError("secret")


async def _ask(
    path: str, method: str = "GET", handler: Any = _echo, **headers: str
) -> httpx.Response:
    route = Route(
        "/m/(?P<model>[^/]+)(?:/v/(?P<version>[0-9]+))?", ("GET",), handler, Feature.HEALTH, PLAIN
    )
    restriction = Restriction(frozenset({Feature.LOGGING}), "k", "v")
    start = Router([route], [restriction]).start
    async with (
        listening(start, "HTTP", "127.0.0.1", 0, ExitDeadline(1)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", verify=False) as client,
    ):
        return await client.request(method, path, headers=headers)


@pytest.mark.parametrize(
    ("path", "target"), [("/m/a", "a|"), ("/m/a/v/07?x=1", "a|07"), ("/m/a%2Fb", "a%2Fb|")]
)
async def test_path_names_the_target_as_it_was_sent(path: str, target: str) -> None:
    assert (await _ask(path)).text == target


@pytest.mark.contract("H-25")
@pytest.mark.parametrize("path", ["/", "/m/", "/m/a/", "/m/a/v/x", "/m/a/v/-1", "//m/a", "/M/a"])
async def test_other_paths_are_not_found(path: str) -> None:
    answer = await _ask(path)
    assert (answer.status_code, answer.json()) == (404, {"error": "Not Found"})


@pytest.mark.contract("H-26")
@pytest.mark.parametrize("method", ["POST", "HEAD", "DELETE"])
async def test_other_methods_are_not_allowed(method: str) -> None:
    answer = await _ask("/m/a", method)
    assert answer.status_code == 405
    assert answer.headers["content-type"] == "text/plain"
    assert answer.headers["allow"] == "GET"


async def test_unexpected_error_tells_the_log_and_not_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer = await _ask("/m/a", handler=_break)
    assert (answer.status_code, answer.json()) == (
        500,
        {"error": "unexpected error, see the server's log"},
    )
    assert "ValueError: secret" in caplog.text


@pytest.mark.contract("L-08")
async def test_an_inference_that_fails_is_told_when_verbose(
    server: FakeServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG, "penstock.gateway")
    body = {"id": "h-1", "inputs": [], "outputs": [{"name": "IN", "parameters": 1}]}
    async with connected(server) as client:
        await client.post("/v2/models/numbers/infer", json=body)
        assert "Infer failed" not in caplog.text
        monkeypatch.setattr(VERBOSITY, "level", 1)
        answer = await client.post("/v2/models/numbers/infer", json=body)
    assert answer.status_code >= 400
    assert f"Infer failed: {answer.json()['error']}" in caplog.text


@pytest.mark.contract("H-28")
@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("UNKNOWN", 400),
        ("INTERNAL", 500),
        ("NOT_FOUND", 404),
        ("INVALID_ARG", 400),
        ("UNAVAILABLE", 503),
        ("UNSUPPORTED", 501),
        ("ALREADY_EXISTS", 400),
        ("CANCELLED", 400),
    ],
)
def test_every_code_has_its_status(code: str, status: int) -> None:
    assert http_status(error_from_code(code, "")) == status


def test_class_without_a_status_has_that_of_its_base() -> None:
    assert http_status(ModelLoadError("")) == http_status(AlreadyExistsError("")) == 400
    assert http_status(InferenceError("")) == 400


_RESTRICTED = HttpSettings(
    address="127.0.0.1",
    port=0,
    restrictions=(Restriction(frozenset({Feature.MODEL_REPOSITORY}), "admin-key", "secret"),),
)


@pytest.mark.contract("H-29", "SEC-03")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([], 403),
        ([("admin-key", "x")], 403),
        ([("Admin-Key", "secret")], 200),
        ([("admin-key", "secret"), ("Admin-Key", "x")], 403),
        ([("admin-key", "x"), ("Admin-Key", "secret")], 403),
        ([("admin-key", "secret"), ("Admin-Key", "secret")], 403),
    ],
)
async def test_restricted_features_need_their_header(
    server: FakeServer, headers: list[tuple[str, str]], status: int
) -> None:
    """Once: of two, a proxy before the server may have read the other."""
    async with connected(server, _RESTRICTED) as client:
        answer = await client.post("/v2/repository/index", headers=headers)
        free = await client.get("/v2/health/live")
    assert (answer.status_code, free.status_code) == (status, 200)
    if status == 403:
        text = "This API is restricted, expecting header 'admin-key'"
        assert answer.json() == {"error": text}


@pytest.mark.contract("H-24")
@pytest.mark.parametrize(
    "path", ["/metrics", "/v2/metrics", "/v2/models/m/versions/1/trace/setting"]
)
async def test_unknown_paths_are_not_found(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 404
