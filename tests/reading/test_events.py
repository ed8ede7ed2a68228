"""Server-sent events, found wherever a stream is cut."""

from __future__ import annotations

import pytest

from penstock_client.reading.events import EventStream, data_of

_STREAM = b": hello\n\ndata: 1\r\n\r\nevent: error\ndata: {\ndata: }\n\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_events_are_found_wherever_they_are_cut(size: int) -> None:
    stream = EventStream()
    parts = [_STREAM[at : at + size] for at in range(0, len(_STREAM), size)]
    found = [event for part in parts for event in stream.take(part)]
    assert found == [b": hello", b"data: 1", b"event: error\ndata: {\ndata: }"]


def test_an_event_that_has_not_ended_waits() -> None:
    assert EventStream().take(b"data: 1\n") == []


def test_data_of_several_lines_is_one_text() -> None:
    assert data_of(b"event: error\ndata: {\ndata: }") == b" {\n }"
    assert data_of(b": hello") == b""
