"""Requests to OpenAI's API that are wrong or meant to harm, while others are served."""

from __future__ import annotations

import socket

import httpx
import pytest

from harness.openai_bad_requests import BAD, CHAT, JSON, chat, embed, others, structured
from harness.serving import Served, wait_until

pytestmark = pytest.mark.slow

MEANWHILE = ((CHAT, chat(temperature=0)), ("/v1/embeddings", embed("red")))


@pytest.mark.parametrize("name", BAD)
def test_a_bad_request_is_refused_and_others_are_served(name: str, http: httpx.Client) -> None:
    path, body, status = BAD[name]
    with others(http, *MEANWHILE):
        answer = http.post(path, content=body, headers=JSON)
    assert answer.status_code == status, answer.text[:500]
    assert answer.json()["error"]["message"]
    assert len(answer.content) < 10_000


def test_a_regex_that_goes_back_and_forth_is_no_trouble(http: httpx.Client) -> None:
    """The engine makes an automaton of it."""
    with others(http, *MEANWHILE):
        answer = http.post(CHAT, content=structured(regex="(a+)+b"))
    assert answer.status_code == 200


def test_a_reader_of_single_bytes_holds_nobody_up(served: Served, http: httpx.Client) -> None:
    body = chat(stream=True, max_tokens=400, ignore_eos=True)
    host, port = served.http.split(":")
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        slow.connect((host, int(port)))
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
        slow.sendall(head.encode() + body)
        for _ in range(3):
            with others(http, *MEANWHILE):
                assert slow.recv(1)
    wait_until(lambda: 'penstock_in_flight_requests{model="tiny_llm",version="1"} 0' in (
        httpx.get(served.metrics, verify=False).text
    ))  # fmt: skip
