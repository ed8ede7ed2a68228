"""The model process: takes batches from the server, runs the model, answers.

A model's code blocks, so no event loop stands between the link and `execute`: the main thread
reads a batch, runs it, and writes the responses. Threads that the model starts send through the
same link, and whoever waits for something reads it (see `BlockingLink`). Models whose `execute`
is a coroutine get an event loop, which watches the link.
"""

from __future__ import annotations

import os
import socket

from penstock.core.allocator import tune_allocator
from penstock.hosting.blocking import LinkClosedError
from penstock.hosting.parent import die_with_parent
from penstock.hosting.reap import kill_group
from penstock_backends.python.stub import Stub


def run(descriptor: int, inputs: int, outputs: int) -> None:
    """Serve the link on this socket until the server ends it; the arenas come as descriptors."""
    die_with_parent()
    tune_allocator()
    connection = socket.socket(fileno=descriptor)
    # The model's children must not keep it open, neither those that it starts nor its forks.
    for number in (descriptor, inputs, outputs):
        os.set_inheritable(number, False)
    os.register_at_fork(after_in_child=connection.close)
    stub = Stub(connection, inputs, outputs)
    process = os.getpid()
    try:
        stub.serve()
    except* LinkClosedError:  # in a group, when an event loop has noticed
        if os.getpid() != process:
            os._exit(1)  # a fork of the model's, which has left `execute` and has no link
        kill_group(os.getpgrp())  # the server is gone, and so is all of this
