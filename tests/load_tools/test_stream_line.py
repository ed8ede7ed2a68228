"""Readers of tokens in load tests: what they count, however it comes, and what ends a load."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import pytest
from loadtest.process import cpu_seconds
from loadtest.stream_line import http_line
from loadtest.stream_tally import Tally

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_ROLE = b'{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}'
_TOKEN = b'{"choices":[{"index":0,"delta":{"content":" list"}}]}'
_LAST = b'{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}'
_USAGE = b'{"choices":[],"usage":{"prompt_tokens": 7, "completion_tokens": 3}}'
_END = b"0\r\n\r\n"

Reading = Callable[..., Tally]


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_CHAT = [
    _HEAD,
    _chunk(_event(_ROLE)),
    *[_chunk(_event(_TOKEN))] * 3,
    _chunk(_event(_LAST)),
    _chunk(_event(_USAGE) + _event(b"[DONE]")),
    _END,
]


@pytest.fixture
def reading() -> Iterator[Reading]:
    """Has a reader ask, and read as often as parts come; what it counted."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def read(parts: Sequence[bytes], mark: str = "", refusal: str = "") -> Tally:
            tally = Tally(mark, refusal)
            target = f"127.0.0.1:{listener.getsockname()[1]}"
            line = http_line(target, "/v1/chat/completions", tally, lambda _: None, {})
            server, _ = listener.accept()
            with server, closing(line):
                line.start(b"{}")
                for part in parts:
                    server.sendall(part)
                    line.read()
            return tally

        yield read


def _cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 50, 97, 10_000])
def test_tokens_are_counted_however_the_stream_is_cut(reading: Reading, size: int) -> None:
    tally = reading(_cut(b"".join(_CHAT), size))
    assert (tally.messages, tally.tokens, tally.calls) == (3, 3, 1)
    assert (len(tally.firsts), len(tally.wholes)) == (1, 1)


def test_tokens_are_counted_that_come_chunk_by_chunk(reading: Reading) -> None:
    tally = reading(_CHAT)
    assert (tally.messages, tally.tokens, tally.calls) == (3, 3, 1)


def test_the_role_is_not_the_first_token(reading: Reading) -> None:
    tally = reading(_CHAT[:2])
    assert (tally.messages, len(tally.firsts)) == (0, 0)


def test_an_event_is_counted_once_where_chunks_cut_its_end(reading: Reading) -> None:
    event = _event(_TOKEN)
    parts = [_HEAD, _chunk(event), _chunk(event[:-1]), _chunk(event[-1:] + event)]
    assert reading(parts).messages == 3


def test_an_error_ends_the_load(reading: Reading) -> None:
    parts = [_HEAD, _chunk(_event(_TOKEN)), _chunk(_event(b'{"error": {"message": "m"}}')), _END]
    with pytest.raises(SystemExit, match="an error came"):
        reading(parts)


def test_a_refusal_that_is_expected_is_counted(reading: Reading) -> None:
    error = b'{"error":"too many"}'
    head = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: %d\r\n\r\n" % len(error)
    tally = reading([head + error], refusal="too many")
    assert (tally.calls, len(tally.refusals)) == (1, 1)


def test_marks_are_counted_that_share_an_event(reading: Reading) -> None:
    event = _event(b'{"choices":[{"index":0,"delta":{"content":"~~a~~b"}}]}')
    tally = reading([_HEAD, _chunk(event), _chunk(event)], mark="~~")
    assert (tally.messages, tally.marks) == (2, 4)


def test_a_refusal_ends_the_load(reading: Reading) -> None:
    with pytest.raises(SystemExit, match="429"):
        reading([b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n"])


@pytest.mark.parametrize("size", [1, 40, 10_000])
def test_a_whole_answer_is_one_message_with_its_usage(reading: Reading, size: int) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(_USAGE), _USAGE)
    tally = reading(_cut(answer, size))
    assert (tally.messages, tally.tokens, tally.calls) == (1, 3, 1)
    assert tally.firsts == tally.wholes


def test_cpu_time_of_a_process_is_that_of_its_clock() -> None:
    before = time.process_time()
    found = cpu_seconds(os.getpid())
    assert before <= found <= time.process_time()
