"""A client with a connection and a process of its own, that asks again and again how it is served.

    python -m loadtest.hostile.bystander WHAT PORT

It asks without end. A line of its input that says `begin` has it forget what has happened; for one
that says `look` it writes the longest wait in seconds since then, with the one that lasts, and how
many calls were answered and failed.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread
from typing import NamedTuple

import grpc

from loadtest.hostile.wire_bytes import block, tensor

_PATIENCE = 120.0
_INFER = "/inference.GRPCInferenceService/ModelInfer"
_NUMBERS = b"\1\0\0\0" * 16
_JSON_SIZE = 1_500_000

Ask = Callable[[], None]


def _health(port: int) -> Ask:
    return _http(port, "GET", "/v2/health/live", None)


def _json(port: int) -> Ask:
    count = _JSON_SIZE // 2
    data = ",".join(["1"] * count)
    place = f'"name":"INPUT0","datatype":"FP32","shape":[1,{count}],"data":[{data}]'
    body = f'{{"inputs":[{{{place}}}],"outputs":[{{"name":"NO"}}]}}'.encode()
    return _http(port, "POST", "/v2/models/identity/infer", body)


def _http(port: int, method: str, path: str, body: bytes | None) -> Ask:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)

    def ask() -> None:
        try:
            connection.request(method, path, body)
            connection.getresponse().read()
        except OSError:
            connection.close()
            raise

    return ask


def _simple(port: int) -> Ask:
    inputs = tensor("INPUT0", "INT32", (1, 16)) + tensor("INPUT1", "INT32", (1, 16))
    return _grpc(port, block(1, b"simple") + inputs + block(7, _NUMBERS) * 2)


def _minilm(port: int) -> Ask:
    text = tensor("TEXT", "BYTES", (1, 1)) + block(7, b"\5\0\0\0hello")
    return _grpc(port, block(1, b"minilm") + text)


def _grpc(port: int, message: bytes) -> Ask:
    call = grpc.insecure_channel(f"127.0.0.1:{port}").unary_unary(_INFER, bytes, bytes)

    def ask() -> None:
        call(message, timeout=_PATIENCE)

    return ask


_KINDS: dict[str, tuple[str, Callable[[int], Ask], float]] = {
    "health": ("http", _health, 0.003),
    "simple": ("grpc", _simple, 0.010),
    "minilm": ("grpc", _minilm, 0.010),
    "json": ("http", _json, 0.100),
}
"""The port that each asks, how, and its pause in seconds."""


class Waits(NamedTuple):
    """The longest wait in seconds, and how many calls were answered and failed."""

    longest: float
    answered: int
    failed: int

    @property
    def milliseconds(self) -> float:
        return self.longest * 1000


class _Asking:
    """Calls one after the other, and the longest of them."""

    def __init__(self, ask: Ask, pause: float) -> None:
        self._ask = ask
        self._pause = pause
        self._longest = 0.0
        self._answered = 0
        self._failed = 0
        self._since: float | None = None
        self._begun = time.perf_counter()

    def run(self) -> None:
        while True:
            self._since = begun = time.perf_counter()
            try:
                self._ask()
                self._answered += 1
            except Exception:  # of any client; the next call connects again
                self._failed += 1
            self._since = None
            self._longest = max(self._longest, self._waited(begun))
            time.sleep(self._pause)

    def begin(self) -> None:
        """Forget what has happened; of a call under way only what is to come counts."""
        self._longest, self._answered, self._failed = 0.0, 0, 0
        self._begun = time.perf_counter()

    def look(self) -> Waits:
        """Counts of answers and waits since the beginning."""
        since = self._since
        waiting = 0.0 if since is None else self._waited(since)
        return Waits(max(self._longest, waiting), self._answered, self._failed)

    def _waited(self, begun: float) -> float:
        return time.perf_counter() - max(begun, self._begun)


@dataclass(slots=True)
class Bystander:
    """The process, seen from the one that measures."""

    process: subprocess.Popen[str]

    @classmethod
    def start(cls, what: str, ports: dict[str, int]) -> Bystander:
        port = str(ports[_KINDS[what][0]])
        command = [sys.executable, "-m", "loadtest.hostile.bystander", what, port]
        pipe = subprocess.PIPE
        return cls(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))

    def begin(self) -> None:
        """Have it forget what has happened."""
        self._say("begin")

    def look(self) -> Waits:
        """Counts of answers and waits since the beginning."""
        self._say("look")
        assert self.process.stdout is not None
        return Waits(*json.loads(self.process.stdout.readline()))

    def _say(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


def main() -> None:
    _, make, pause = _KINDS[sys.argv[1]]
    asking = _Asking(make(int(sys.argv[2])), pause)
    Thread(target=asking.run, daemon=True).start()
    for word in sys.stdin:
        if word == "begin\n":
            asking.begin()
        else:
            print(json.dumps(asking.look()), flush=True)


if __name__ == "__main__":
    main()
