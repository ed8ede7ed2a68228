"""The link without an event loop: any thread sends, and any waits."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from hosting.link.any_answers import ANY_ANSWERS
from penstock.hosting.link.blocking import BlockingLink, LinkClosedError
from penstock.hosting.link.link import FrameReader, encode, encode_answer


class Ends:
    """A link, the messages that it has read, and a plain socket at the other end."""

    def __init__(self) -> None:
        self.other, mine = socket.socketpair()
        self.messages: list[tuple[int, Any, bytes]] = []
        self.link = BlockingLink(mine, self._message)
        self.mine = mine

    def say(self, kind: int, header: Any, payload: bytes = b"") -> None:
        self.other.sendall(b"".join(encode(kind, header, [payload])))

    def close(self) -> None:
        self.other.close()
        self.mine.close()

    def _message(self, kind: int, header: Any, payload: memoryview) -> None:
        self.messages.append((kind, header, bytes(payload)))


class Noting(socket.socket):
    """A socket that notes the flags with which it was read."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(fileno=descriptor)
        self.flags: list[int] = []

    def recv_into(self, *arguments: Any) -> int:
        self.flags.append(arguments[2])
        return super().recv_into(*arguments)


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.close()


def test_waiting_reads_until_the_condition_holds(ends: Ends) -> None:
    ends.say(1, "first", b"x")
    ends.say(2, "second")
    ends.link.wait(lambda: len(ends.messages) == 2)
    assert ends.messages == [(1, "first", b"x"), (2, "second", b"")]


def test_who_waits_sleeps_until_there_is_a_message_and_who_polls_does_not(ends: Ends) -> None:
    noting = Noting(ends.mine.detach())
    link = BlockingLink(noting, lambda *message: None)
    ends.say(1, "waited for")
    link.wait(lambda: bool(noting.flags))
    link.poll()
    noting.close()
    assert noting.flags == [0, socket.MSG_DONTWAIT]


def test_condition_that_holds_reads_nothing(ends: Ends) -> None:
    ends.say(1, "unread")
    ends.link.wait(lambda: True)
    assert ends.messages == []


def test_time_of_waiting_counts_only_where_there_is_something_to_wait_for(ends: Ends) -> None:
    ends.link.wait(lambda: True)
    assert ends.link.waited == 0
    ends.say(1, "awaited")
    ends.link.wait(lambda: bool(ends.messages))
    assert ends.link.waited > 0


def test_time_of_waiting_is_that_of_the_thread_that_executes(ends: Ends) -> None:
    """What other threads wait for keeps nobody from executing."""
    waiting = threading.Thread(target=ends.link.wait, args=(lambda: bool(ends.messages),))
    waiting.start()
    ends.say(1, "awaited")
    waiting.join()
    assert ends.messages
    assert ends.link.waited == 0


def test_polling_reads_what_is_there_and_does_not_wait(ends: Ends) -> None:
    ends.link.poll()
    assert ends.messages == []
    ends.say(1, "there")
    ends.link.poll()
    assert [header for _, header, _ in ends.messages] == ["there"]


def test_waiting_ends_with_the_link(ends: Ends) -> None:
    ends.other.close()
    with pytest.raises(LinkClosedError):
        ends.link.wait(lambda: False)
    assert ends.link.closed


def test_last_messages_are_read_before_the_end(ends: Ends) -> None:
    ends.say(1, "last words")
    ends.other.close()
    with pytest.raises(LinkClosedError):
        ends.link.wait(lambda: False)
    assert [header for _, header, _ in ends.messages] == ["last words"]


def test_every_thread_gets_what_it_waits_for(ends: Ends) -> None:
    def wait_for(header: int) -> None:
        ends.link.wait(lambda: any(header == seen for _, seen, _ in ends.messages))

    threads = [threading.Thread(target=wait_for, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for number in reversed(range(8)):
        ends.say(1, number)
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)


def test_end_of_the_link_wakes_every_thread(ends: Ends) -> None:
    woken = threading.Semaphore(0)

    def wait() -> None:
        with pytest.raises(LinkClosedError):
            ends.link.wait(lambda: False)
        woken.release()

    threads = [threading.Thread(target=wait) for _ in range(4)]
    for thread in threads:
        thread.start()
    ends.other.close()
    assert all(woken.acquire(timeout=60) for _ in threads)


def test_messages_of_many_threads_stay_whole(ends: Ends) -> None:
    def send(number: int) -> None:
        for _ in range(50):
            ends.link.send(1, number, [bytes([number]) * 50_000])

    threads = [threading.Thread(target=send, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    reader, seen = FrameReader(ANY_ANSWERS), list[int]()
    while len(seen) < 200:
        for _, header, payload in reader.feed(ends.other.recv(1 << 18)):
            assert bytes(payload) == bytes([header]) * 50_000
            seen.append(header)
    for thread in threads:
        thread.join(10)
    assert sorted(seen) == sorted([*range(4)] * 50)


def test_payload_may_be_written_to(ends: Ends) -> None:
    written: list[bytes] = []

    def overwrite(_: int, __: Any, payload: memoryview) -> None:
        payload[:1] = b"X"
        written.append(bytes(payload))

    link = BlockingLink(ends.mine, overwrite)
    ends.say(1, None, b"abc")
    link.wait(lambda: bool(written))
    assert written == [b"Xbc"]


def received(ends: Ends, seconds: float) -> list[tuple[int, Any]]:
    """What the other end has within so many seconds of its first byte being waited for."""
    ends.other.settimeout(seconds)
    try:
        data = ends.other.recv(1 << 16)
    except TimeoutError:
        return []
    return [(kind, header) for kind, header, _ in FrameReader(ANY_ANSWERS).feed(data)]


def test_held_messages_leave_before_the_next_one_in_one_write(ends: Ends) -> None:
    ends.link.hold_parts(encode_answer(1, "first"))
    ends.link.send(2, "second")
    assert received(ends, 5) == [(1, "first"), (2, "second")]


def test_held_messages_leave_before_the_link_is_waited_for(ends: Ends) -> None:
    ends.link.hold_parts(encode_answer(1, "held"))
    ends.say(9, "go on")
    ends.link.wait(lambda: bool(ends.messages))
    assert received(ends, 5) == [(1, "held")]


@pytest.mark.parametrize("rests", [False, True])
def test_held_messages_leave_though_nothing_follows(ends: Ends, rests: bool) -> None:
    for number in range(3):  # also after a rest, from when on nobody looks any more
        ends.link.hold_parts(encode_answer(1, number))
        assert received(ends, 5) == [(1, number)]
        while rests and ends.link._holding.is_set():
            time.sleep(0.001)


def test_first_message_of_a_burst_leaves_at_once_and_the_others_together(ends: Ends) -> None:
    ends.link.offer(1, "first")
    assert received(ends, 5) == [(1, "first")]
    for number in range(10):
        ends.link.offer(2, number)
    ends.link.send(3, "end")
    heard: list[tuple[int, Any]] = []
    while (3, "end") not in heard:
        heard += received(ends, 5)
    assert heard == [*((2, number) for number in range(10)), (3, "end")]


def test_messages_offered_with_a_pause_leave_at_once(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = itertools.count(0, 10_000_000)
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(now))
    for number in range(3):
        ends.link.offer(1, number)
        assert received(ends, 5) == [(1, number)]


def test_link_is_closed_by_a_message_that_cannot_be_handled(ends: Ends) -> None:
    """Those read with it are gone: whoever waited for one would wait for ever."""
    link = BlockingLink(ends.mine, refuse)
    ends.say(1, "refused")
    with pytest.raises(MemoryError):
        link.wait(lambda: False)
    with pytest.raises(LinkClosedError):
        link.wait(lambda: False)


def refuse(*_: object) -> None:
    raise MemoryError
