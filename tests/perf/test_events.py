"""Chunks and events of answers over HTTP, found wherever they are cut, and counted rightly."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_client.perf.wire.events import Events
from penstock_client.perf.wire.http import whole_chunks

_EMPTY = [
    '{"id":"1","choices":[{"delta":{"role":"assistant","content":""}}]}',
    '{"id":"1","choices":[{"delta":{},"finish_reason":"stop"}]}',
    "[DONE]",
]
_FULL = [
    '{"id":"1","choices":[{"delta":{"content":"a"}}]}',
    '{"id":"1","choices":[{"delta":{"content":""}},{"delta":{"content":"b"}}]}',
    '{"choices": [{"delta": {"reasoning_content": "hm"}}]}',
    '{"id":"1","choices":[{"text":"a"}],"usage":null}',
    '{"model_name":"llm","text_output":"a"}',
    json.dumps({"id": "1", "choices": [{"delta": {"content": "data: [DONE]"}}]}),
    json.dumps({"choices": [{"delta": {"content": '"error" "completion_tokens": 9\n\n'}}]}),
]


@st.composite
def _bodies(draw: st.DrawFn) -> tuple[bytes, int]:
    """Bytes of events, and how many of these are responses."""
    data = draw(st.lists(st.sampled_from(_EMPTY + _FULL), max_size=8))
    end = draw(st.sampled_from([b"\n", b"\r\n"]))
    begin = draw(st.sampled_from([b"", b": ping" + b"\n\n", b"id: 1\n"]))
    events = [begin + b"data: " + each.encode() + end + end for each in data]
    return b"".join(events), sum(each in _FULL for each in data)


def _cut(data: bytes, places: set[int]) -> list[bytes]:
    at = [0, *sorted(each % (len(data) + 1) for each in places), len(data)]
    return [data[begin:end] for begin, end in pairwise(at)]


_PLACES = st.sets(st.integers(0, 5000), max_size=8)


@given(_bodies(), _PLACES)
def test_events_are_counted_wherever_they_are_cut(body: tuple[bytes, int], at: set[int]) -> None:
    data, count = body
    events = Events()
    assert sum(map(events.take, _cut(data, at))) == count
    assert (events.error, events.tokens) == ("", 0)


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=6), _PLACES)
def test_chunks_are_whole_wherever_they_are_cut(contents: list[bytes], places: set[int]) -> None:
    sent = b"".join(b"%X ;a=b\r\n%b\r\n" % (len(each), each) for each in contents)
    sent += b"0\r\nX: y\r\n\r\nrest"
    buffer, found = bytearray(), []
    ended = False
    for part in _cut(sent, places):
        buffer += part
        if not ended:
            chunks = whole_chunks(buffer)
            found += [bytes(buffer[begin:end]) for begin, end in chunks.spans]
            del buffer[: chunks.used]
            ended = chunks.ended
    assert (found, ended, bytes(buffer)) == (contents, True, b"rest")


@pytest.mark.parametrize("line", [b"", b"x", b"-1", b"-6", b";a=b"])
def test_chunk_without_a_size_is_broken(line: bytes) -> None:
    found = whole_chunks(b"1\r\na\r\n" + line + b"\r\n\r\n")
    assert (found.spans, found.broken) == ([(3, 4)], True)


@pytest.mark.parametrize(
    "event",
    [
        b'data: {"error": {"message": "gone"}}',
        b'data:{"error":"gone"}',
        b'event: error\ndata: {"error": {"message": "gone", "code": 500}}',
        b'id: 4\ndata: {"error":{"message":"gone"}}',
    ],
)
def test_error_in_an_event_is_no_response(event: bytes) -> None:
    events = Events()
    assert events.take(event + b"\n\n") == 0
    assert events.error == "gone"


def test_usage_is_counted_beside_text_and_without() -> None:
    events = Events()
    text = (
        b'data: {"id":"1","choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":%d}}'
    )
    usage = b'data: {"id":"1","choices":[],"usage":{"completion_tokens": 3}}'
    assert events.take(text % 1 + b"\n\n" + text % 2 + b"\n\n" + usage + b"\n\n") == 2
    assert events.tokens == 3
