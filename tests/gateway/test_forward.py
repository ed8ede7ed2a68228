"""Headers forwarded as request parameters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.serving import FakeServer, connected
from penstock.settings import Feature, HttpSettings, Restriction

_INFER = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]}
_HEADERS = {"X-One": "1", "x-two": "2", "Other": "3"}


def _settings(pattern: str) -> HttpSettings:
    return HttpSettings(address="127.0.0.1", port=0, header_forward_pattern=pattern)


@pytest.mark.contract("H-30")
@pytest.mark.parametrize(
    ("path", "body"),
    [("infer", {**_INFER, "parameters": {"p": 1}}), ("generate", {"IN": 1, "p": 1})],
)
@pytest.mark.parametrize(
    ("pattern", "forwarded"),
    [
        ("", {}),
        ("^X-", {"X-One": "1", "x-two": "2"}),
        ("one", {"X-One": "1"}),
        ("nothing", {}),
    ],
)
async def test_headers_that_match_become_parameters_under_their_own_names(
    server: FakeServer, path: str, body: object, pattern: str, forwarded: dict[str, str]
) -> None:
    async with connected(server, _settings(pattern)) as client:
        answer = await client.post(f"/v2/models/numbers/{path}", json=body, headers=_HEADERS)
    assert answer.status_code == 200
    assert server.requests[0].parameters == {"p": 1, **forwarded}


async def test_the_secret_of_a_restriction_reaches_no_model(server: FakeServer) -> None:
    secret = Restriction(frozenset({Feature.INFERENCE}), "X-Key", "s3cret")
    settings = replace(_settings("^x-"), restrictions=(secret,))
    headers = {"x-key": "s3cret", "x-two": "2"}
    async with connected(server, settings) as client:
        answer = await client.post("/v2/models/numbers/infer", json=_INFER, headers=headers)
    assert answer.status_code == 200
    assert server.requests[0].parameters == {"x-two": "2"}


@pytest.mark.contract("H-30", "GT-18", "SEC-13")
async def test_reserved_headers_fail_the_request(server: FakeServer) -> None:
    async with connected(server, _settings("prio")) as client:
        answer = await client.post(
            "/v2/models/numbers/infer", json=_INFER, headers={"Priority": "1"}
        )
    text = "Header 'Priority' is reserved for Triton usage and cannot be forwarded."
    assert (answer.status_code, answer.json()) == (400, {"error": text})


async def test_other_requests_of_the_connection_keep_their_own_headers(
    server: FakeServer,
) -> None:
    async with connected(server, _settings("^X-")) as client:
        for name in ("X-A", "X-B"):
            await client.post("/v2/models/numbers/infer", json=_INFER, headers={name: "v"})
    assert [request.parameters for request in server.requests] == [{"X-A": "v"}, {"X-B": "v"}]


@pytest.mark.contract("H-30")
@pytest.mark.parametrize("sent", ["Jos\u00e9".encode(), "Jos\u00e9".encode("latin-1")])
async def test_value_beyond_ascii_is_read_as_utf8_and_else_as_latin1(
    server: FakeServer, sent: bytes
) -> None:
    async with connected(server, _settings("^X-")) as client:
        await client.post("/v2/models/numbers/infer", json=_INFER, headers={b"X-User": sent})
    assert server.requests[0].parameters == {"X-User": "Jos\u00e9"}
