"""The exporter process: reads traces from the server, and exports their spans.

It has an interpreter of its own since OpenTelemetry's SDK takes tens of microseconds for each span,
and threads that hold the GIL. It reads the frames of `TraceExport` from the socket whose number is
its only argument, and answers with reports. It ends when the server closes the socket.
"""

from __future__ import annotations

import marshal
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress

from penstock.system.process_control import die_with_parent, hide
from penstock.tracing.export import Frames, Report, frame

_NICENESS = 5
"""How much lower its priority is than the server's, whose requests come first."""

_LOOK_SECONDS = 1.0
"""Seconds between looks for batches that wait for requests in vain."""


def _payloads(link: socket.socket) -> Iterator[bytes]:
    """What the server sends, until it closes the socket; nothing, if it is silent for a while."""
    frames = Frames()
    while True:
        if not select.select([link], [], [], _LOOK_SECONDS)[0]:
            yield b""
            continue
        data = link.recv(1 << 18)
        if not data:
            return
        yield from frames.add(data)


def export_all(link: socket.socket) -> None:
    """Export what comes from the server: the settings first, then traces."""
    from penstock.tracing.otlp import SpanPipeline  # may fail, which the server is told

    pipeline: SpanPipeline | None = None
    for payload in _payloads(link):
        if pipeline is None:
            pipeline = SpanPipeline(link, marshal.loads(payload)) if payload else None
            continue
        if payload:
            pipeline.take(payload)
        pipeline.look()
    if pipeline is not None:
        pipeline.close()


def main() -> None:
    """Run the process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the server ends it, once it has flushed
    die_with_parent()
    hide()  # it holds what traces say of clients' requests
    os.nice(_NICENESS)
    link = socket.socket(fileno=int(sys.argv[1]))
    status = 0
    try:
        export_all(link)
    except Exception as error:  # the server logs it, and starts another process
        status = 1
        with suppress(OSError):
            link.sendall(frame(marshal.dumps(tuple(Report(0, 0, repr(error))))))
    os._exit(status)  # threads of the exporter may wait for the collector


if __name__ == "__main__":
    main()
