"""The live screen, on a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from harness.serving import alive, wait_until
from top.stub_server import StubServer, stub_server, tritons

PATIENCE = 60.0
_HOME = "\x1b[H"
_LEAVE = "\x1b[?1049l"
_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`penstock top` in a process of its own, on a terminal of 130 columns and 30 lines."""

    def __init__(self, *arguments: str, term: str = "xterm-256color") -> None:
        self.pid, self._end = pty.fork()
        if self.pid == 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, [])  # whatever the tests' process has
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.environ |= {"TERM": term, "COLUMNS": "93"}
            command = [sys.executable, "-m", "penstock", "top", *arguments]
            os.execv(sys.executable, command)
        self.resize(130, 30)
        self.output = ""
        self.before = termios.tcgetattr(self._end)

    def resize(self, width: int, height: int) -> None:
        size = struct.pack("HHHH", height, width, 0, 0)
        fcntl.ioctl(self._end, termios.TIOCSWINSZ, size)

    def settings(self) -> list[object]:
        return list(termios.tcgetattr(self._end))

    def type(self, keys: bytes) -> None:
        os.write(self._end, keys)

    @property
    def frame(self) -> str:
        """The last whole frame, as text."""
        frames = self.output.split(_HOME)
        return _STYLE.sub("", frames[-2] if len(frames) > 2 else "").replace("\r", "")

    def wait_for(self, text: str, absent: str = "\0") -> str:
        """Read until a frame has `text` and not `absent`; the frame."""
        end = time.monotonic() + PATIENCE
        while text not in self.frame or absent in self.frame:
            assert time.monotonic() < end, f"no '{text}' in:\n{self.output[-6000:]}"
            assert self._read(), f"it has ended:\n{self.output[-6000:]}"
        return self.frame

    def ended(self) -> int:
        """Read to the end; the exit status."""
        while self._read():
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def hang_up(self) -> None:
        """Close the terminal, as its window does."""
        end, self._end = self._end, -1
        if end >= 0:
            os.close(end)

    def close(self) -> None:
        self.hang_up()
        with suppress(ChildProcessError, ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    def _read(self) -> bool:
        """Read a little; false at the end."""
        if not select.select([self._end], [], [], 0.2)[0]:
            return True
        with suppress(OSError):  # how the end of a terminal is told on Linux
            read = os.read(self._end, 1 << 16)
            self.output += read.decode("utf-8", "replace")
            return bool(read)
        return False


@contextmanager
def top(server: StubServer) -> Iterator[Terminal]:
    address = str(server.address)
    terminal = Terminal("--url", address, "--http", address, "--interval", "0.2")
    try:
        yield terminal
    finally:
        terminal.close()


pytestmark = pytest.mark.slow


def test_keys_sort_select_open_and_quit(server: StubServer) -> None:
    server.answers["/metrics"] = b"".join(
        b'nv_inference_request_success{model="%s",version="1"} 1\n' % name
        for name in (b"bert", b"gpt", b"t5")
    )
    with top(server) as terminal:
        assert "req/s*" in terminal.wait_for("t5 ")  # behind it no model is to come
        terminal.type(b"s")
        terminal.wait_for("queue*")
        terminal.type(b"j\r")
        assert "gpt " in terminal.wait_for("esc back", absent="bert")
        terminal.type(b"\x1b[B")
        terminal.wait_for("t5 ", absent="gpt")
        terminal.type(b"\x1b")
        terminal.wait_for("enter details")
        terminal.type(b"q")
        assert terminal.ended() == 0
        assert terminal.output.rstrip().endswith(_LEAVE)


def test_a_server_that_restarts_is_waited_for() -> None:
    with ExitStack() as screen:
        with stub_server() as first:
            tritons(first, success=1000)
            terminal = screen.enter_context(top(first))
            terminal.wait_for("bert ")
        assert "connection refused" in terminal.wait_for("NO ANSWER")
        assert "bert " in terminal.wait_for("figures are the last ones")
        with stub_server(first.server_port) as second:
            tritons(second, success=3)
            frame = terminal.wait_for("READY", absent="NO ANSWER")
            assert "figures are the last ones" not in frame
            terminal.type(b"q")
            assert terminal.ended() == 0
            assert "Traceback" not in terminal.output


def test_keys_work_while_the_server_does_not_answer(server: StubServer) -> None:
    server.answers["/metrics"] = server.hold
    with top(server) as terminal:
        terminal.wait_for("bert ")
        terminal.type(b"\r")
        terminal.wait_for("esc back")
        terminal.wait_for("waiting for metrics for ")
        terminal.type(b"q")
        assert terminal.ended() == 0
    assert not server.released.is_set()


def test_keys_work_while_a_huge_page_is_read(server: StubServer) -> None:
    line = b'nv_inference_request_success{model="m%06d",version="1"} 1\n'
    server.answers["/metrics"] = b"".join(line % number for number in range(20_000))
    with top(server) as terminal:
        terminal.type(b"s")
        terminal.wait_for("queue*")
        terminal.type(b"q")
        assert terminal.ended() == 0


def test_the_frame_follows_the_terminals_size(server: StubServer) -> None:
    with top(server) as terminal:
        terminal.wait_for("inf/s")
        terminal.resize(60, 20)
        terminal.wait_for("bert ", absent="inf/s")
        terminal.type(b"q")
        assert terminal.ended() == 0


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "SIGINT"]
)
def test_a_signal_leaves_the_terminal_as_it_was(
    server: StubServer, number: signal.Signals, status: int
) -> None:
    with top(server) as terminal:
        terminal.wait_for("bert ")
        assert terminal.settings() != terminal.before
        os.kill(terminal.pid, number)
        assert terminal.ended() == status
        assert terminal.output.rstrip().endswith(_LEAVE)
        assert "Traceback" not in terminal.output


def test_a_terminal_that_is_gone_ends_it(server: StubServer) -> None:
    with top(server) as terminal:
        terminal.wait_for("bert ")
        pid = terminal.pid
        terminal.hang_up()
        wait_until(lambda: not alive(pid))
    assert server.asked


@pytest.mark.parametrize(
    ("more", "term"),
    [(["--once"], "xterm-256color"), ([], "dumb")],
    ids=["--once", "a terminal without a cursor"],
)
def test_one_table_is_printed_on_a_terminal(server: StubServer, more: list[str], term: str) -> None:
    address = str(server.address)
    arguments = ["--url", address, "--http", address, "--interval", "0.1", *more]
    terminal = Terminal(*arguments, term=term)
    try:
        assert terminal.ended() == 0
        assert "bert" in terminal.output
        assert _HOME not in terminal.output
    finally:
        terminal.close()
