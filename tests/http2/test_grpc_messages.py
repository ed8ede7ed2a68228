"""Messages assembled from pieces, in buffers that the caller allocates."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.http2.grpc import (
    CHOSEN_FROM,
    MOST_AT_ONCE,
    PREFIX,
    PREFIX_SIZE,
    MessageReader,
    MessageSizeError,
)
from penstock.http2.stream import Buffer


class Chooser:
    """Allocates buffers, and records the arguments of each call."""

    def __init__(self, *, gives: bool = True) -> None:
        self.given: list[memoryview] = []
        self.calls: list[tuple[int, bytes]] = []
        self._gives = gives

    def reserve(self, size: int, beginning: memoryview) -> memoryview | None:
        self.calls.append((size, bytes(beginning)))
        if not self._gives:
            return None
        self.given.append(memoryview(bytearray(size)))
        return self.given[-1]


def _wire(flag: int, message: bytes) -> bytes:
    return PREFIX.pack(flag, len(message)) + message


def _read(reader: MessageReader, data: bytes, cuts: list[int]) -> list[tuple[int, Buffer]]:
    """The messages in `data`, of which each second piece is read into the message's own buffer."""
    done: list[tuple[int, Buffer]] = []
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for number, (begin, end) in enumerate(pairwise(edges)):
        piece = memoryview(data)[begin:end]
        memory = reader.memory() if number % 2 else None
        if memory is not None and len(memory) >= len(piece):
            memory[: len(piece)] = piece
            whole = reader.filled(len(piece))
            done += [] if whole is None else [whole]
        else:
            done += reader.feed(piece)
    return done


messages = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.integers(0, 255),
        st.sampled_from([0, 7, CHOSEN_FROM - 1, CHOSEN_FROM, 3 * CHOSEN_FROM]),
    ),
    max_size=4,
)


@given(messages, st.lists(st.integers(0, 1 << 20), max_size=8), st.booleans())
def test_messages_are_the_same_in_any_memory(
    sizes: list[tuple[int, int, int]], cuts: list[int], gives: bool
) -> None:
    chooser = Chooser(gives=gives)
    sent = [(flag, bytes([byte]) * size) for flag, byte, size in sizes]
    reader = MessageReader(1 << 20, chooser.reserve)
    got = _read(reader, b"".join(_wire(*one) for one in sent), cuts)
    assert [(flag, bytes(data)) for flag, data in got] == sent
    assert reader.empty
    plain = [data for flag, data in sent if not flag and len(data) >= CHOSEN_FROM]
    assert [size for size, _ in chooser.calls] == [len(data) for data in plain]
    assert not gives or [bytes(data) for data in chooser.given] == plain


@pytest.mark.parametrize("come", [1, PREFIX_SIZE, PREFIX_SIZE + 1])
def test_a_message_that_has_begun_is_incomplete(come: int) -> None:
    reader = MessageReader(10)
    assert reader.feed(memoryview(_wire(0, b"abc"))[:come]) == []
    assert not reader.empty


def test_reserve_is_given_the_first_bytes_of_the_message() -> None:
    chooser = Chooser()
    data = _wire(0, b"begins" + bytes(CHOSEN_FROM))
    MessageReader(1 << 20, chooser.reserve).feed(memoryview(data)[:11])
    assert chooser.calls == [(CHOSEN_FROM + 6, b"begins")]


def test_reserve_is_not_called_for_a_message_beyond_the_limit() -> None:
    chooser = Chooser()
    with pytest.raises(MessageSizeError):
        MessageReader(1 << 20, chooser.reserve).feed(memoryview(PREFIX.pack(0, 1 << 30) + b"x"))
    assert chooser.calls == []


def test_closed_reader_holds_nothing_and_begins_nothing() -> None:
    chooser = Chooser()
    reader, data = MessageReader(1 << 20, chooser.reserve), _wire(0, bytes(CHOSEN_FROM))
    reader.feed(memoryview(data)[:100])
    reader.close()
    assert reader.feed(memoryview(data)) == []
    assert (reader.memory(), len(chooser.calls)) == (None, 1)


def test_many_messages_of_one_read_are_returned_a_part_at_a_time() -> None:
    reader = MessageReader(1 << 20)
    sent = [(0, b"%d" % number) for number in range(3 * MOST_AT_ONCE)]
    data = b"".join(_wire(*one) for one in sent)
    cut = len(data) - 1  # within the last one
    got = [reader.feed(memoryview(data)[:cut]), reader.feed(memoryview(data)[cut:])]
    got += [reader.more() for _ in range(3)]
    assert [len(part) for part in got] == [MOST_AT_ONCE, 0, MOST_AT_ONCE, MOST_AT_ONCE, 0]
    assert [message for part in got for message in part] == sent


def test_many_messages_of_a_frame_each_are_returned_a_part_at_a_time() -> None:
    reader = MessageReader(1 << 20)
    sent = [(0, b"%d" % number) for number in range(2 * MOST_AT_ONCE)]
    pieces = [memoryview(_wire(*one)) for one in sent]
    got = [reader.feed_pieces(pieces, sum(map(len, pieces))), reader.more()]
    assert [len(part) for part in got] == [MOST_AT_ONCE] * 2
    assert [message for part in got for message in part] == sent


def test_message_beyond_the_limit_is_found_behind_many_others() -> None:
    reader = MessageReader(10)
    data = _wire(0, b"") * MOST_AT_ONCE + PREFIX.pack(0, 11)
    assert len(reader.feed(memoryview(data))) == MOST_AT_ONCE
    with pytest.raises(MessageSizeError):
        reader.more()


def test_closed_reader_has_no_more_messages() -> None:
    reader = MessageReader(10)
    reader.feed(memoryview(_wire(0, b"") * 2 * MOST_AT_ONCE))
    reader.close()
    assert reader.more() == []


def test_large_message_is_copied_once_while_it_comes() -> None:
    """Each copy of what has come holds up other calls."""
    reader = MessageReader(1 << 30)
    reader.feed(memoryview(PREFIX.pack(0, 64 << 20) + bytes(5 << 20)))
    memory = reader.memory()
    reader.feed(memoryview(bytes(40 << 20)))
    later = reader.memory()
    assert memory is not None
    assert later is not None
    assert memory.obj is later.obj
