"""Clients that do not read: what the server keeps for each, and what its neighbours notice.

    python -m loadtest.scenarios.slow_reader [--wire chat] [--readers 64] [--transport grpcio]

On each wire many clients ask for answers without end, and read once: over gRPC a model in Python
that sends 4 KiB at a time, else recorded tokens, which are made as fast as they are taken. One more
does not read tokens that come each 5 ms, while a neighbour reads such. `front KiB` and `model KiB`
are private memory for each reader, of the process that talks to clients and of the models', once
nothing moves any more, with what its connection takes. They are those of the last three quarters
of the readers: the first take what the processes had to spare. Beside it are the neighbour's times
between tokens, alone and beside the readers, and `ratio` is that of the 99th percentiles. What the
kernel holds for a socket is in none of these.
"""

from __future__ import annotations

import argparse
import select
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from loadtest.llm_requests import OPENAI, grpc_request, sse_body
from loadtest.llm_subjects import WIRES
from loadtest.process import Server, penstock
from loadtest.python_models import FLOOD
from loadtest.recorded_models import Pace, installed, write_models
from loadtest.report import Row, arguments, median_rows, show
from loadtest.stream_line import STREAM, endpoint_of
from loadtest.stream_load import StreamLoad, StreamOutcome, run
from penstock.protocol import grpc_service_pb2 as pb
from penstock_client.perf.wire import grpc, http
from penstock_client.perf.wire.outgoing import framed

_ROOT = Path(__file__).resolve().parents[2]
_FLAT_OUT = Pace("flat out", 0, merge=False)
_PACED = Pace("5 ms", 5, merge=True)
_ENDLESS = {"max_tokens": 10**9}
_PROMPT = "What do you know?"
_RECEIVE_BUFFER = 4096  # bytes, of readers that do not read
_SEGMENT = 1448  # bytes, of Ethernet
_AT_ONCE = 1 << 16  # bytes
_LOOK = 1.0  # seconds between two looks at the server's CPU time
_STILL = 0.05  # of a core: a front whose readers are all stuck uses less
_LONGEST = 120.0  # seconds until they are


def main() -> None:
    options = _options().parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        for pace in (_FLAT_OUT, _PACED):
            write_models(directory / "models", pace)
        (directory / "models" / "flood" / "1").mkdir(parents=True)
        (directory / "models" / "flood" / "1" / "model.py").write_text(FLOOD)
        site = installed(directory / "site")

        def measure() -> list[Row]:
            return [_row(directory, site, options, wire) for wire in options.wire]

        rows = median_rows(options.rounds, measure)
    show(f"slow readers, {options.transport}", rows, options.json)


def _options() -> argparse.ArgumentParser:
    parser = arguments(__doc__)
    parser.add_argument("--wire", nargs="+", choices=WIRES, default=list(WIRES))
    parser.add_argument("--readers", type=int, default=256)
    parser.add_argument("--transport", choices=("grpcio", "native"), default="native")
    parser.add_argument("--python", default=sys.executable, help="the server's interpreter")
    return parser


def _row(directory: Path, site: Path, options: argparse.Namespace, wire: str) -> Row:
    """Each has a server of its own: memory that was torn is used again."""
    transport = f"--grpc-transport={options.transport}"
    paths = [site, _ROOT]
    with penstock(directory / "models", transport, python=options.python, paths=paths) as server:
        alone = _neighbour(directory, server, wire, options.seconds)
        first = max(1, options.readers // 4)
        rest = max(1, options.readers - first)
        with _stuck(server, wire, first):
            before = _memory(server)
            with _stuck(server, wire, rest), _paced(server, wire):
                after = _memory(server)
                beside = _neighbour(directory, server, wire, options.seconds)
    return {
        "wire": wire,
        "readers": str(options.readers),
        "front MiB before": before["front"] / 1024,
        "front MiB with": after["front"] / 1024,
        "front KiB": (after["front"] - before["front"]) / rest,
        "model KiB": (after["engine"] - before["engine"]) / rest,
        "alone p50 ms": alone.gap_p50,
        "p99 ms": alone.gap_p99,
        "beside p50 ms": beside.gap_p50,
        "beside p99 ms": beside.gap_p99,
        "ratio": beside.gap_p99 / alone.gap_p99,
        "front us": alone.cpu["front"] / alone.messages * 1e6,
        "beside us": beside.cpu["front"] / beside.messages * 1e6,
    }


def _neighbour(directory: Path, server: Server, wire: str, seconds: float) -> StreamOutcome:
    """A client that reads tokens as they come."""
    file = directory / f"neighbour-{wire}.bin"
    file.write_bytes(_request(_PACED, wire))
    return run(
        StreamLoad(
            _target(server, wire),
            "grpc" if wire == "grpc" else "sse",
            [str(file)],
            streams=1,
            seconds=seconds,
            paths=[_path(_PACED, wire)],
            watched=server.processes(),
        )
    )


@contextmanager
def _stuck(server: Server, wire: str, count: int) -> Iterator[None]:
    """So many readers that ask, read once and never again; the server has room for none of them."""
    message = _flood() if wire == "grpc" else _request(_FLAT_OUT, wire)
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(_begun(server, wire, _FLAT_OUT, message))
        end, spent = time.monotonic() + _LONGEST, 0.0
        while (now := server.own_cpu_seconds()) - spent > _STILL * _LOOK:
            if time.monotonic() > end:
                raise SystemExit(f"after {_LONGEST:.0f} s who does not read is still sent to")
            spent = now
            time.sleep(_LOOK)
        yield


def _paced(server: Server, wire: str) -> AbstractContextManager[None]:
    """A reader that takes one token, of those that the neighbour's model makes."""
    return _begun(server, wire, _PACED, _request(_PACED, wire))


@contextmanager
def _begun(server: Server, wire: str, pace: Pace, message: bytes) -> Iterator[None]:
    with _connected(_target(server, wire)) as reader:
        reader.sendall(_asked(server, wire, pace, message))
        select.select([reader], [], [])
        reader.recv(_AT_ONCE)
        yield


def _connected(target: str) -> socket.socket:
    """A connection with a small buffer, and so small segments, as on a network.

    On the loopback, whose are of 64 KiB, the kernel would hold megabytes for the peer before that
    notices that nobody reads.
    """
    endpoint, connection = endpoint_of(target), socket.socket()
    # Before it connects, since the window is told then.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _SEGMENT)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.connect((endpoint.host, endpoint.port))
    return connection


def _asked(server: Server, wire: str, pace: Pace, message: bytes) -> bytes:
    """The first bytes of a connection: all of one call."""
    endpoint = endpoint_of(_target(server, wire))
    if wire == "grpc":
        begin, between, body = framed(grpc.request_head(endpoint, STREAM, {}), message)
        number = (1).to_bytes(4, "big")  # of the first stream
        return grpc.opening() + begin + number + between + number + body
    head = http.request_head(endpoint, _path(pace, wire), {}, "application/json")
    return http.request(head, message)[0]


def _target(server: Server, wire: str) -> str:
    return server.target if wire == "grpc" else f"127.0.0.1:{server.http_port}"


def _path(pace: Pace, wire: str) -> str:
    generate = f"/v2/models/{pace.model(0)}/generate_stream"
    return OPENAI[wire].path if wire in OPENAI else generate


def _request(pace: Pace, wire: str) -> bytes:
    model = pace.model(0)
    if wire == "grpc":
        return _serialized(grpc_request(model, _PROMPT, _ENDLESS, coalesce=pace.merge))
    if wire == "sse":
        return sse_body(_PROMPT, _ENDLESS, coalesce=pace.merge)
    return OPENAI[wire].body(model, _PROMPT, _ENDLESS)


def _flood() -> bytes:
    message = pb.ModelInferRequest(model_name="flood")
    message.inputs.add(name="IN", datatype="INT32", shape=[1])
    message.raw_input_contents.append(bytes(4))
    return _serialized(message)


def _serialized(message: pb.ModelInferRequest) -> bytes:
    serialized: bytes = message.SerializeToString()
    return serialized


def _memory(server: Server) -> dict[str, float]:
    """Private KiB of the process that talks to clients, and of those that it started."""
    return {
        name: sum(map(_private, pids))
        for name, pids in server.processes().items()
        if name != "core"
    }


def _private(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return float(sum(int(line.split()[1]) for line in lines if line.startswith("Private_")))


if __name__ == "__main__":
    main()
