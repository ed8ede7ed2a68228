"""Our connection and a client of the `h11` library talk, in any pieces."""

from __future__ import annotations

from itertools import cycle
from typing import NamedTuple

import h11
from hypothesis import given
from hypothesis import strategies as st

from http1.fuzzing.attack import Attack
from http1.fuzzing.valid_requests import Understood
from penstock.http1.limits import HttpLimits


class _Call(NamedTuple):
    handler: str
    parts: list[bytes]
    chunked: bool
    expects: bool


_CALLS = st.lists(
    st.builds(
        _Call,
        st.sampled_from(["now", "later", "parts", "pieces"]),
        st.lists(st.binary(min_size=1, max_size=3000), max_size=4),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=5,
)


@given(_CALLS, st.lists(st.integers(1, 4000), min_size=1, max_size=8))
def test_client_of_h11_gets_an_answer_to_each_call(calls: list[_Call], sizes: list[int]) -> None:
    """Bodies of known length and in chunks, asked for or not, on one connection."""
    attack, client, heard = Attack(HttpLimits()), h11.Connection(h11.CLIENT), 0
    for number, call in enumerate(calls):
        _feed(attack, _bytes(client, number, call), sizes)
        data = attack.sent_since(heard)
        heard += len(data)
        client.receive_data(data)
        size, checksum = Understood.of(b"", b"", b"".join(call.parts))[2:]
        assert _answer(client) == f"POST /{call.handler}/{number} {size} {checksum}".encode()
        client.start_next_cycle()
    attack.lose()


def _bytes(client: h11.Connection, number: int, call: _Call) -> bytes:
    """What the client sends for a call."""
    size = sum(map(len, call.parts))
    framing = ("transfer-encoding", "chunked") if call.chunked else ("content-length", str(size))
    headers = [("host", "x"), framing, *([("expect", "100-continue")] if call.expects else [])]
    request = h11.Request(method="POST", target=f"/{call.handler}/{number}", headers=headers)
    events = [request, *(h11.Data(data=part) for part in call.parts), h11.EndOfMessage()]
    return b"".join(client.send(event) or b"" for event in events)


def _feed(attack: Attack, data: bytes, sizes: list[int]) -> None:
    turns = cycle(sizes)
    while data:
        size = next(turns)
        attack.feed(data[:size])
        data = data[size:]
    attack.settle()


def _answer(client: h11.Connection) -> bytes:
    """What the service says that it understood."""
    found = b""
    while not isinstance(event := client.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.InformationalResponse | h11.Response | h11.Data), event
        if isinstance(event, h11.Response):
            found = dict(event.headers)[b"x-request"]
    return found
