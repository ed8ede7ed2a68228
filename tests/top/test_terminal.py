"""A terminal whose keys are sent at once, and the wake-up of who waits for them."""

from __future__ import annotations

import os
import pty
import termios
from collections.abc import Iterator
from contextlib import suppress
from threading import Thread
from typing import Any

import pytest

from penstock_client.top.terminal import WakeUp, each_key, terminal_size


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """The two ends of a terminal: that of the user, and that of a program."""
    user, program = pty.openpty()
    yield user, program
    for each in (user, program):
        with suppress(OSError):  # the test has closed it
            os.close(each)


def settings(descriptor: int) -> list[Any]:
    return termios.tcgetattr(descriptor)


def test_keys_are_sent_at_once_and_not_shown_until_the_end(terminal: tuple[int, int]) -> None:
    _, program = terminal
    before = settings(program)
    with suppress(ValueError), each_key(program):
        flags = settings(program)[3]
        assert not flags & (termios.ICANON | termios.ECHO)
        assert flags & termios.ISIG  # Ctrl-C
        assert settings(program)[6][termios.VSUSP] == b"\0"
        raise ValueError
    assert settings(program) == before


def test_a_terminal_tells_its_size(terminal: tuple[int, int]) -> None:
    _, program = terminal
    assert terminal_size(program) == (80, 24)  # it does not know
    termios.tcsetwinsize(program, (50, 120))
    assert terminal_size(program) == (120, 50)
    os.close(program)
    assert terminal_size(program) == (80, 24)


def test_what_was_typed_ends_the_wait(terminal: tuple[int, int]) -> None:
    user, program = terminal
    wake_up = WakeUp()
    with each_key(program):
        os.write(user, b"q")
        assert wake_up.wait(program, 60.0) == b"q"
        assert wake_up.wait(program, 0.0) == b""
    os.close(user)
    assert wake_up.wait(program, 60.0) is None


def test_a_call_of_another_thread_ends_the_wait(terminal: tuple[int, int]) -> None:
    _, program = terminal
    wake_up = WakeUp()
    thread = Thread(target=wake_up.call)
    thread.start()
    assert wake_up.wait(program, 60.0) == b""
    thread.join()
    for _ in range(100_000):  # more than a pipe holds
        wake_up.call()
    assert wake_up.wait(program, 60.0) == b""
