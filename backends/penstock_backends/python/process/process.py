"""The model process: takes batches from the server, runs the model, answers.

A model's code blocks, so no event loop stands between the link and `execute`: the main thread
reads a batch, runs it, and writes the responses. Threads that the model starts send through the
same link, and whoever waits for something reads it (see `BlockingLink`). Models whose `execute`
is a coroutine get an event loop, which watches the link.
"""

from __future__ import annotations

import os
import socket
import time

from penstock.hosting.link.blocking import LinkClosedError
from penstock.system.allocator import tune_allocator
from penstock.system.parent import die_with_parent
from penstock.system.reap import kill_group
from penstock_backends.python.process.model_link import Stub

_PATIENCE = 60.0
"""Seconds in which a server has killed a process whose link is closed."""


def run(descriptor: int, inputs: int, outputs: int) -> None:
    """Serve the link on this socket until the server ends it; the arenas come as descriptors."""
    die_with_parent()
    tune_allocator()
    connection = socket.socket(fileno=descriptor)
    # The model's children must not keep it open, neither those that it starts nor its forks.
    for number in (descriptor, inputs, outputs):
        os.set_inheritable(number, False)
    stub = Stub(connection, inputs, outputs)
    os.register_at_fork(after_in_child=stub.cut)
    server = os.getppid()
    try:
        stub.serve()
    except* LinkClosedError:  # in a group, when an event loop has noticed
        stub.end_fork()
        _end(server)


def _end(server: int) -> None:
    """The link is closed: end, and take along what the model has started.

    If the server is still there, the model has closed the link. The server sees so, says so, and
    kills this process, but not if that seems to have died by itself. A server that died before
    this process knew it looks like one that lives, so this waits for a time only.
    """
    end = time.monotonic() + _PATIENCE
    while os.getppid() == server and time.monotonic() < end:
        time.sleep(0.1)
    kill_group(os.getpgrp())
