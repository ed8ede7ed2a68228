"""A process of the load, started as `python -m penstock_client.perf.load.child`.

It takes a pickled `Job` from its standard input, and tells `Message`s on its standard output. The
end of the input, too, ends the load.
"""

from __future__ import annotations

import gc
import os
import resource
import sys

from penstock_client.perf.load.job import Ended, Go, Job, Message, Ready
from penstock_client.perf.load.pipe import read_message, write_message
from penstock_client.perf.load.worker import Worker


def main() -> None:
    """The process: connect, wait for the start, put the load on."""
    job = read_message(sys.stdin.buffer)
    assert isinstance(job, Job)

    def tell(message: Message) -> None:
        write_message(sys.stdout.buffer, message)

    _allow_connections()
    worker = Worker(job, tell, sys.stdin.fileno())
    try:
        worker.connect()
    except OSError as error:
        tell(Ready(error.strerror or str(error)))
        return
    tell(Ready())
    start = read_message(sys.stdin.buffer)
    assert isinstance(start, Go)
    # What is kept is kept by arrays: there is little garbage with rings, and looking takes time.
    gc.collect()
    gc.freeze()
    gc.disable()
    worker.run(start)
    worker.close()
    tell(Ended(worker.problem))


def _allow_connections() -> None:
    """As many as the system allows: of HTTP there is one for each request at a time."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


if __name__ == "__main__":
    try:
        main()
    except (EOFError, BrokenPipeError):
        # Who started this is gone. What is left to be told is not to be told at the exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
