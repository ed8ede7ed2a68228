"""Entry point of the model process: it receives batches, executes the model and sends responses.

A model's code blocks, so no event loop stands between the link and `execute`: the main thread
reads a batch, executes it, and writes the responses. Threads that the model starts send through
the same link, and each thread that waits for a message may read it (see `BlockingLink`). Models
whose `execute` is a coroutine get an event loop, which reads the link.

Each part knows only those before it: link, runtime, reply table, execution, worker.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

from penstock.hosting.link.blocking import LinkClosedError
from penstock.system.allocator import tune_allocator
from penstock.system.process_control import die_with_parent
from penstock.system.reap import kill_group
from penstock_backends.python.pb_utils import runtime
from penstock_backends.python.process.linked_runtime import LinkedRuntime
from penstock_backends.python.process.model_link import ModelLink
from penstock_backends.python.process.worker import Worker


def run(descriptor: int, inputs: int, outputs: int, kill_seconds: float = 60.0) -> None:
    """Serve the link on this socket until the server ends it; all three are descriptors.

    In so many seconds a live server kills a process whose link is closed.
    """
    die_with_parent()
    tune_allocator()
    connection = socket.socket(fileno=descriptor)
    # The model's children must not keep it open, neither those that it starts nor its forks.
    for number in (descriptor, inputs, outputs):
        os.set_inheritable(number, False)
    link = ModelLink(connection, inputs, outputs)
    os.register_at_fork(after_in_child=link.close_in_fork)
    linked = LinkedRuntime(link)
    runtime.install(linked)
    worker = Worker(link, linked)
    server = os.getppid()
    try:
        worker.serve()
    except* LinkClosedError:  # in a group, when an event loop has noticed
        link.exit_if_fork()
        with suppress(OSError):  # the model may have closed it
            connection.shutdown(socket.SHUT_RDWR)  # or the server would not notice a failed write
        _end(server, kill_seconds)


def _end(server: int, kill_seconds: float) -> None:
    """Terminate this process and all that the model has started: the link is closed.

    If the server is alive, the model has closed the link: the server notices, logs it and kills
    this process, but only while that runs. A server that died before this process read its id
    looks alive, so the wait is limited.
    """
    end = time.monotonic() + kill_seconds
    while os.getppid() == server and time.monotonic() < end:
        time.sleep(0.1)
    kill_group(os.getpgrp())
