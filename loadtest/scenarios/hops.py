"""The floor under every call of a model in a process: there and back over a Unix socket.

One side is an event loop, as the server's, the other blocks, as a model in Python; neither does
anything with what comes. A call costs this at least when it is alone, since each side sleeps until
the other wakes it; calls that are under way together share it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from typing import cast

import uvloop

from loadtest.report import Row, arguments, median_rows, show

_TRIPS = 20_000
_MESSAGE = bytes(300)


def main() -> None:
    options = arguments(__doc__, timed=False).parse_args()
    cores = os.sched_getaffinity(0)
    places = {"any core": cores, "one core": {min(cores)}}

    def measure() -> list[Row]:
        return [_row(label, allowed) for label, allowed in places.items()]

    rows = median_rows(options.rounds, measure)
    os.sched_setaffinity(0, cores)
    show("there and back between two processes", rows, options.json)


def _row(label: str, cores: set[int]) -> Row:
    os.sched_setaffinity(0, cores)
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        _answer(theirs)
        os._exit(0)
    theirs.close()
    elapsed, cpu = uvloop.run(_ask(ours))
    usage = os.wait4(child, 0)[2]
    other = usage.ru_utime + usage.ru_stime
    return {
        "on": label,
        "us": elapsed / _TRIPS * 1e6,
        "cpu us": (cpu + other) / _TRIPS * 1e6,
        "event loop's": cpu / _TRIPS * 1e6,
    }


def _answer(link: socket.socket) -> None:
    """Give back what comes, until there is no more."""
    buffer = bytearray(1 << 16)
    while link.recv_into(buffer):
        link.sendall(_MESSAGE)


class _Asking(asyncio.Protocol):
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._left = _TRIPS
        self._transport: asyncio.WriteTransport
        self.done = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._transport.write(_MESSAGE)

    def data_received(self, data: bytes) -> None:
        self._left -= 1
        if self._left:
            self._loop.call_soon(self._transport.write, _MESSAGE)
        else:
            self.done.set_result(None)


async def _ask(link: socket.socket) -> tuple[float, float]:
    """Seconds of the clock, and of the CPU, for all trips."""
    start, cpu = time.perf_counter(), time.process_time()
    loop = asyncio.get_running_loop()
    transport, asking = await loop.create_unix_connection(_Asking, sock=link)
    await asking.done
    used = time.perf_counter() - start, time.process_time() - cpu
    transport.close()
    return used


if __name__ == "__main__":
    main()
