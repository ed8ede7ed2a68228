"""Headers that are passed on to the model."""

from __future__ import annotations

import pytest

from gateway.serving import FakeServer, connected
from penstock.settings import HttpSettings

_INFER = {"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1], "data": [1]}]}
_HEADERS = {"X-One": "1", "x-two": "2", "Other": "3"}


def _settings(pattern: str) -> HttpSettings:
    return HttpSettings(address="127.0.0.1", port=0, header_forward_pattern=pattern)


@pytest.mark.parametrize(
    ("path", "body"),
    [("infer", {**_INFER, "parameters": {"p": 1}}), ("generate", {"IN": 1, "p": 1})],
)
@pytest.mark.parametrize(
    ("pattern", "forwarded"),
    [
        ("", {}),
        ("^X-", {"X-One": "1"}),
        ("(?i)x-", {"X-One": "1", "x-two": "2"}),
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


async def test_other_requests_of_the_connection_keep_their_own_headers(
    server: FakeServer,
) -> None:
    async with connected(server, _settings("^X-")) as client:
        for name in ("X-A", "X-B"):
            await client.post("/v2/models/numbers/infer", json=_INFER, headers={name: "v"})
    assert [request.parameters for request in server.requests] == [{"X-A": "v"}, {"X-B": "v"}]
