"""Servers that meet at one Unix socket."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.outcomes import raises_nothing
from penstock.system.local_socket import LocalSocket

SERVERS = 4


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where a server was that has been killed."""
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as abandoned:
        abandoned.bind(path)
    return path


def reaches(path: str, server: LocalSocket) -> bool:
    """Whether who calls this path comes to the server."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(path)
        server.socket.setblocking(False)
        server.socket.accept()[0].close()
    return True


def meet(path: str) -> list[LocalSocket | None]:
    """The outcomes of servers that start at the same time."""
    together = threading.Barrier(SERVERS)

    def start(_: int) -> LocalSocket | None:
        together.wait()
        try:
            return LocalSocket(path, 8)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return None

    with ThreadPoolExecutor(SERVERS) as threads:
        return list(threads.map(start, range(SERVERS)))


@pytest.mark.parametrize("_", range(50))
def test_one_of_the_servers_that_start_together_takes_the_socket_over(path: str, _: int) -> None:
    (winner,) = (server for server in meet(path) if server is not None)
    assert reaches(path, winner)
    winner.socket.close()


def test_the_next_server_may_start_when_the_file_is_removed(path: str) -> None:
    """The socket may be closed later."""
    first = LocalSocket(path, 8)
    first.remove()
    second = LocalSocket(path, 8)
    first.socket.close()
    assert reaches(path, second)
    second.socket.close()


def test_the_file_of_another_server_stays(path: str) -> None:
    first = LocalSocket(path, 8)
    os.unlink(path)
    second = LocalSocket(path, 8)
    first.remove()
    assert reaches(path, second)
    second.remove()
    second.remove()
    assert not os.path.exists(path)
    first.socket.close()
    second.socket.close()


def test_a_file_that_cannot_be_removed_keeps_no_server_from_its_end(tmp_path: Path) -> None:
    directory = tmp_path / "directory"
    directory.mkdir()
    server = LocalSocket(str(directory / "socket"), 8)
    directory.rename(tmp_path / "elsewhere")
    directory.touch()
    with raises_nothing():
        try:
            server.remove()
        finally:
            server.socket.close()


def test_a_directory_that_a_stranger_has_locked_is_no_obstacle(path: str) -> None:
    directory = os.open(os.path.dirname(path), os.O_RDONLY)
    fcntl.flock(directory, fcntl.LOCK_EX)
    server = LocalSocket(path, 8)
    assert reaches(path, server)
    server.socket.close()
    os.close(directory)


def test_a_refusal_leaves_nothing_open(path: str) -> None:
    server = LocalSocket(path, 8)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="in use"):
        LocalSocket(path, 8)
    with pytest.raises(FileNotFoundError):
        LocalSocket("/nowhere/socket", 8)
    assert len(os.listdir("/proc/self/fd")) == before
    server.socket.close()
