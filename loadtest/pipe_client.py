"""A client at the other end of a socket from an engine, as plain as one can be.

    python -m loadtest.pipe_client DESCRIPTOR STREAMS ROUNDS TOKENS

A request is its number. A message back is the number of its request, whether it is the last one,
and the length of the text behind. Prints what was measured as a line of JSON.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time

from loadtest.stream_tally import Call, Tally, percentile

NUMBER = struct.Struct("<I")
_HEAD = struct.Struct("<I?I")


def text_message(number: int, text: str, *, last: bool) -> bytes:
    """A message to the client."""
    data = text.encode()
    return _HEAD.pack(number, last, len(data)) + data


def outcome(tally: Tally, tokens: int, seconds: float) -> dict[str, float]:
    """Tokens a second, and times in milliseconds."""
    return {
        "tokens_per_second": tokens / seconds,
        "first_p50": percentile(tally.firsts, 0.5) * 1e3,
        "first_p99": percentile(tally.firsts, 0.99) * 1e3,
        "gap_p50": percentile(tally.gaps, 0.5) * 1e3,
        "gap_p99": percentile(tally.gaps, 0.99) * 1e3,
        "whole_p50": percentile(tally.wholes, 0.5) * 1e3,
    }


class PipeClient:
    """Sends a request for each that has ended, and counts what comes."""

    def __init__(self, engine: socket.socket, calls: int) -> None:
        self._engine = engine
        self._left = calls
        self._calls: dict[int, Call] = {}
        self._number = 0
        self.tally = Tally()

    def run(self, streams: int) -> None:
        """All calls, as many at a time as there are streams."""
        for _ in range(streams):
            self._start()
        rest = b""
        while self._calls:
            rest = self._read(rest + self._engine.recv(1 << 16), time.perf_counter())

    def _start(self) -> None:
        if self._left:
            self._left -= 1
            self._number += 1
            self._calls[self._number] = Call(time.perf_counter())
            self._engine.sendall(NUMBER.pack(self._number))

    def _read(self, data: bytes, now: float) -> bytes:
        """Count the messages; what is left of an incomplete one."""
        at = 0
        while len(data) - at >= _HEAD.size:
            number, last, size = _HEAD.unpack_from(data, at)
            if len(data) - at < _HEAD.size + size:
                break
            at += _HEAD.size + size
            self.tally.message(self._calls[number], now)
            if last:
                self.tally.ended(self._calls.pop(number), now)
                self._start()
        return data[at:]


def main() -> None:
    descriptor, streams, rounds, tokens = map(int, sys.argv[1:])
    with socket.socket(fileno=descriptor) as engine:
        client = PipeClient(engine, streams * rounds)
        start, cpu = time.perf_counter(), time.process_time()
        client.run(streams)
        seconds = time.perf_counter() - start
    count = streams * rounds * tokens
    client_cpu = (time.process_time() - cpu) / count * 1e6
    print(json.dumps(outcome(client.tally, count, seconds) | {"client": client_cpu}))


if __name__ == "__main__":
    main()
