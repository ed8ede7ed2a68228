"""Frames on the socket of the exporter process, and the buffer in front of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.tracing.export import Frames, TraceBuffer, frame


@given(st.lists(st.binary(max_size=50), max_size=10), st.integers(1, 20))
def test_payloads_come_whole_however_the_bytes_are_cut(payloads: list[bytes], cut: int) -> None:
    data = b"".join(map(frame, payloads))
    frames = Frames()
    found: list[bytes] = []
    for at in range(0, len(data), cut):
        found += frames.add(data[at : at + cut])
    assert found == payloads


@given(st.lists(st.tuples(st.binary(max_size=9), st.integers(0, 5))), st.integers(1, 6))
def test_buffer_takes_as_many_as_have_room(traces: list[tuple[bytes, int]], most: int) -> None:
    buffer = TraceBuffer(most, most_bytes=20)
    taken = [(packed, spans) for packed, spans in traces if buffer.add(packed, spans)]
    assert len(buffer) == len(taken) <= most
    assert buffer.take() == (b"".join(p for p, _ in taken), sum(s for _, s in taken))
    assert len(buffer) == 0
    assert sum(len(packed) for packed, _ in taken) <= 20
