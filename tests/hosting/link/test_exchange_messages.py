"""Exchanges over HTTP, and parts of their answers, on their way between processes."""

from __future__ import annotations

import pytest

from fakes import make_request
from penstock.core.errors import UnavailableError
from penstock.core.http_exchange import HttpExchange, HttpHead
from penstock.core.request import ExchangePart
from penstock.hosting.link.messages import pack_exchange, pack_part, unpack_exchange, unpack_part


def test_an_exchange_arrives_as_it_was_sent() -> None:
    exchange = HttpExchange("POST", "/v1/x", "a=1", (("h", "v"), ("h", "w")), b"body")
    request = make_request("id", parameters={"p": 1})._replace(exchange=exchange, inputs={})
    header, payload = pack_exchange(7, request)
    number, arrived = unpack_exchange(header, memoryview(b"".join(payload)))
    assert (number, arrived.id, arrived.model_name, dict(arrived.parameters)) == (
        *(7, "id", "m"),
        {"p": 1},
    )
    found = arrived.exchange
    assert found is not None
    assert (found.method, found.path, found.query, found.headers, found.body) == (
        *("POST", "/v1/x", "a=1"),
        (("h", "v"), ("h", "w")),
        b"body",
    )


@pytest.mark.parametrize(
    "part",
    [
        ExchangePart(head=HttpHead(201, (("h", "v"),))),
        ExchangePart(body=b"abc"),
        ExchangePart(body=b"abc", final=True),
        ExchangePart(final=True, error=UnavailableError("gone"), body=b"why"),
    ],
)
def test_a_part_arrives_as_it_was_sent(part: ExchangePart) -> None:
    header = pack_part(5, part)
    assert header[0] == 5
    arrived = unpack_part(header, memoryview(b"before" + part.body + b"behind"), 6)
    assert (arrived.head, arrived.body, arrived.final) == (part.head, part.body, part.final)
    assert type(arrived.error) is type(part.error)
    assert str(arrived.error) == str(part.error)
