"""A model process whose link is closed terminates, with all that it has started."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from penstock.hosting.link.arena import create
from penstock_backends.python.process import process

pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


def test_process_that_is_not_killed_terminates_itself() -> None:
    server, connection = socket.socketpair()
    arenas = create(1 << 20), create(1 << 20)
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            server.close()
            process.run(connection.detach(), *arenas, kill_seconds=0.0)
        finally:
            os._exit(9)
    for end in (connection, server):
        end.close()
    for descriptor in arenas:
        os.close(descriptor)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == -signal.SIGKILL
