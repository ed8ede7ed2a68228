"""Large JSON bodies: how long other clients wait for their answers beside them.

    python -m loadtest.scenarios.large_json --rounds 3 --clients 8 --megabytes 60

For each kind of body, eight clients send one each at once. Meanwhile a client asks over gRPC and
another over HTTP whether the server lives, again and again. Shown is the longest time that either
waited, beside the longest while nobody sent anything (in the same run: the machine may be busy),
how long all bodies took, and the most memory that the server had.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from threading import Event
from typing import Any

import grpc

from loadtest.process import Server, penstock
from loadtest.report import Row, arguments, median_rows, show
from penstock.protocol import grpc_service_pb2 as pb

_PAUSE_SECONDS = 0.002

_CONFIG = """
backend: "identity"
max_batch_size: 0
input [{{ name: "IN" data_type: {kind} dims: [ -1 ] }}]
output [{{ name: "OUT" data_type: {kind} dims: [ -1 ] }}]
"""
_MODELS = {"numbers": "TYPE_FP32", "texts": "TYPE_STRING"}


def _tensor(datatype: str, element: str, size: int, more: str = "") -> str:
    count = max(size // (len(element) + 1), 1)
    data = ",".join([element] * count)
    place = f'"name":"IN","datatype":"{datatype}","shape":[{count}],"data":[{data}]'
    return f'{{{more}"inputs":[{{{place}}}],"outputs":[{{"name":"NO"}}]}}'


def _members(count: int) -> str:
    return "{" + ",".join(f'"key{n}":{n}' for n in range(count)) + "}"


def _ignored(text: str) -> str:
    """A small request with a member that means nothing."""
    return _tensor("FP32", "1", 100, f'"ignored":{text},')


_OBJECT = '{"a":[1,{"b":"c"}]}'
_KINDS: dict[str, Callable[[int], str]] = {
    "numbers": lambda size: _tensor("FP32", "0.12345678", size),
    "strings": lambda size: _tensor("BYTES", '"some text"', size),
    "one string": lambda size: _tensor("BYTES", f'"{"x" * size}"', size),
    "a million members": lambda _: _ignored(_members(1_000_000)),
    "objects": lambda size: _ignored("[" + ",".join([_OBJECT] * (size // len(_OBJECT))) + "]"),
    "broken at the end": lambda size: _tensor("FP32", "0.12345678", size)[:-1],
    "generate": lambda size: f'{{"IN":[{"0.5," * (size // 4)}1]}}',
    "load": lambda size: f'{{"parameters":{{"file:1/x":"{"A" * size}"}}}}',
}
"""Texts of bodies of about so many bytes; most ask for an output that is not there."""


_OPTIONS = "--model-control-mode=explicit", "--load-model=*", "--allow-model-upload=true"
"""With which the files of a load are read."""


def _body(kind: str, size: int) -> tuple[str, bytes]:
    """The path and body of a request."""
    model = "texts" if "string" in kind else "numbers"
    paths = {
        "generate": f"/v2/models/{model}/generate",
        "load": f"/v2/repository/models/{model}/load",
    }
    return paths.get(kind, f"/v2/models/{model}/infer"), _KINDS[kind](size).encode()


def main() -> None:
    parser = arguments(__doc__, timed=False)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--megabytes", type=int, default=60)
    parser.add_argument("--kinds", nargs="+", choices=_KINDS, default=list(_KINDS))
    options = parser.parse_args()
    size = options.megabytes * 1_000_000
    rows = median_rows(options.rounds, lambda: list(_rows(options.kinds, size, options.clients)))
    show(f"{options.clients} bodies at once", rows, options.json)


def _rows(kinds: list[str], size: int, clients: int) -> Iterator[Row]:
    for kind in kinds:
        with tempfile.TemporaryDirectory() as temporary:
            models = Path(temporary)
            for model, datatype in _MODELS.items():
                (models / model / "1").mkdir(parents=True)
                (models / model / "config.pbtxt").write_text(_CONFIG.format(kind=datatype))
            with penstock(models, *_OPTIONS) as server:
                yield {"body": kind} | _measure(server, kind, size, clients)


def _measure(server: Server, kind: str, size: int, clients: int) -> dict[str, float | str]:
    context = get_context("spawn")
    ready, go, statuses = context.Event(), context.Event(), context.Queue()
    arguments = (server.http_port, kind, size, clients, ready, go, statuses)
    senders = context.Process(target=_send_all, args=arguments)
    senders.start()
    ready.wait()
    idle = _longest_waits(server, lambda: time.sleep(2))
    begin, cpu = time.perf_counter(), server.own_cpu_seconds()
    answered = list[str]()

    def send() -> None:
        go.set()
        answered.append(statuses.get())

    busy = _longest_waits(server, send)
    took, cpu = time.perf_counter() - begin, server.own_cpu_seconds() - cpu
    senders.join()
    return {
        "status": answered[0],
        "gRPC idle ms": idle["grpc"],
        "gRPC ms": busy["grpc"],
        "HTTP idle ms": idle["http"],
        "HTTP ms": busy["http"],
        "all s": took,
        "CPU s": cpu,
        "MiB": _peak_memory(server),
    }


def _send_all(
    port: int, kind: str, size: int, clients: int, ready: Any, go: Any, statuses: Any
) -> None:
    """Send a body of this kind from several clients at once; runs in a process of its own."""
    path, body = _body(kind, size)
    ready.set()
    go.wait()
    with ThreadPoolExecutor(clients) as threads:
        found = threads.map(lambda _: _post(port, path, body), range(clients))
        statuses.put(" ".join(sorted(set(found))))


def _post(port: int, path: str, body: bytes) -> str:
    """Send one request; the status of the answer."""
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), 300) as connection:
        connection.sendall(head.encode())
        connection.sendall(body)
        return connection.recv(1 << 16).split()[1].decode()


def _longest_waits(server: Server, work: Callable[[], None]) -> dict[str, float]:
    """The longest time in ms that a client of each port waited for an answer during `work`."""
    done = Event()
    probes = {"grpc": _grpc_probe, "http": _http_probe}
    with ThreadPoolExecutor(len(probes)) as threads:
        running = {name: threads.submit(probe, server, done) for name, probe in probes.items()}
        try:
            work()
        finally:
            done.set()
    return {name: job.result() * 1e3 for name, job in running.items()}


def _grpc_probe(server: Server, done: Event) -> float:
    with grpc.insecure_channel(server.target) as channel:
        live = channel.unary_unary(
            "/inference.GRPCInferenceService/ServerLive",
            pb.ServerLiveRequest.SerializeToString,
            pb.ServerLiveResponse.FromString,
        )
        return _longest(lambda: live(pb.ServerLiveRequest(), timeout=60), done)


def _http_probe(server: Server, done: Event) -> float:
    with socket.create_connection(("127.0.0.1", server.http_port), 60) as connection:

        def ask() -> None:
            connection.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: x\r\n\r\n")
            assert connection.recv(1 << 12).startswith(b"HTTP/1.1 200 ")

        return _longest(ask, done)


def _longest(ask: Callable[[], object], done: Event) -> float:
    longest = 0.0
    ask()
    while not done.is_set():
        begin = time.perf_counter()
        ask()
        longest = max(longest, time.perf_counter() - begin)
        time.sleep(_PAUSE_SECONDS)
    return longest


def _peak_memory(server: Server) -> float:
    """The most MiB that the server had resident."""
    text = Path(f"/proc/{server.pid}/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) / 1024


if __name__ == "__main__":
    main()
