"""A repository in an object store: downloads, starts from the cache, and others meanwhile.

    python -m loadtest.scenarios.repository --rounds 3 --megabytes 1024

One process stands for the store, on this machine and at a low priority, since another machine would
bear its work. Shown is how long a load of a model of that size
takes that is not in the cache, beside how long `obstore` alone takes to write the same object to a
file, in a process of the same low priority, and in one of the usual one; how long a server takes to
start with everything in the cache, beside one over the same models in a folder; and how long calls
of another model take meanwhile (p99), beside calls while nothing is fetched (before and after: the
mean of both), and while another process downloads the same object with `obstore` alone, at the low
priority. `server cpu` is what the server itself takes of the processor for all its calls during
the load.

Two floors say what of that is the machine's. `hashed` is the shortest loop that does what a load
has to: `obstore`'s stream written to a file, and its SHA-256 on a second thread, at the low
priority. `reachable` is the most of `obstore`'s speed that any code can have, with all cores of the
machine always full: the processor time of `obstore` and the store, by that of this loop and the
store, where `obstore` itself fills the cores. `busy` are calls while two processes of the low
priority do nothing but hash: what work on all cores does to them, without network and disk.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import grpc

from loadtest.process import Server, cpu_seconds, penstock
from loadtest.report import Row, arguments, median_rows, show
from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol.grpc_service_pb2_grpc import GRPCInferenceServiceStub

_CONFIG = """
backend: "identity"
max_batch_size: 0
input [{ name: "IN" data_type: TYPE_FP32 dims: [ -1 ] }]
output [{ name: "OUT" data_type: TYPE_FP32 dims: [ -1 ] }]
"""
_KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
_MODEL = "large"
_NICE = 10
"""The priority of what fetches."""
_BUSY_SECONDS = 5.0
_READY_SECONDS = 1.0
"""After a start, until the process that fetches has started as well."""


def main() -> None:
    parser = arguments(__doc__, timed=False)
    parser.add_argument("--megabytes", type=int, default=1024)
    options = parser.parse_args()
    os.environ.update(_KEYS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _write(folder / "models", options.megabytes << 20)
        with _store(folder / "models") as (port, pid):
            rows = median_rows(options.rounds, lambda: [_measure(folder, port, pid)])
    show(f"a model of {options.megabytes} MiB in an object store", rows, options.json)


def _write(models: Path, size: int) -> None:
    for model in ("small", _MODEL):
        (models / model / "1").mkdir(parents=True)
        (models / model / "config.pbtxt").write_text(_CONFIG)
        (models / model / "1" / "keep").write_text("")
    block = os.urandom(1 << 20)
    with (models / _MODEL / "1" / "weights").open("wb") as file:
        for _ in range(size >> 20):
            file.write(block)
    for path in models.rglob("*"):
        os.utime(path, (0, 0))  # nobody is uploading


def _measure(folder: Path, port: int, store: int) -> Row:
    cache, address = folder / "cache", f"s3://http://127.0.0.1:{port}/bucket"
    shutil.rmtree(cache, ignore_errors=True)
    flags = f"--repository-cache-dir={cache}", "--model-control-mode=explicit"
    at = [cpu_seconds(store)]
    usual, own = _alone_elsewhere(port, folder / "alone", 0)
    at.append(cpu_seconds(store))
    low, _ = _alone_elsewhere(port, folder / "alone", _NICE)
    at.append(cpu_seconds(store))
    hashed, hashing = _alone_elsewhere(port, folder / "alone", _NICE, hashes=True)
    at.append(cpu_seconds(store))
    own, hashing = own + at[1] - at[0], hashing + at[3] - at[2]
    with penstock(address, *flags, "--load-model=small") as server:
        time.sleep(_READY_SECONDS)
        took = _timed(lambda: _load(server))
    shutil.rmtree(cache)
    with penstock(address, *flags, "--load-model=small") as server:
        busy = _p99(server, lambda: _two_busy(_BUSY_SECONDS))
        beside = _p99(server, lambda: _alone_elsewhere(port, folder / "alone", _NICE))
        before = _p99(server, lambda: time.sleep(5))
        cpu = server.own_cpu_seconds()
        meanwhile = _p99(server, lambda: _load(server))
        cpu = server.own_cpu_seconds() - cpu
        idle = (before + _p99(server, lambda: time.sleep(5))) / 2
    local = _timed(lambda: _start(str(folder / "models"), *flags[:1]))
    cached = _timed(lambda: _start(address, *flags[:1]))
    return {
        "obstore s": usual,
        "at low priority s": low,
        "load s": took,
        "hashed s": hashed,
        "obstore and store cpu s": own,
        "hashed and store cpu s": hashing,
        "reachable": own / hashing,
        "ratio": usual / took,
        "ratio at low priority": low / took,
        "hashed to obstore": low / hashed,
        "ratio to hashed": hashed / took,
        "start of a folder s": local,
        "start from the cache s": cached,
        "ratio of starts": cached / local,
        "p99 idle ms": idle * 1e3,
        "p99 beside obstore ms": beside * 1e3,
        "p99 busy ms": busy * 1e3,
        "p99 meanwhile ms": meanwhile * 1e3,
        "ratio of p99": meanwhile / idle,
        "to that beside obstore": meanwhile / beside,
        "to busy": meanwhile / busy,
        "server cpu s": cpu,
    }


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _start(place: str, *flags: str) -> None:
    with penstock(place, *flags):
        pass


def _load(server: Server) -> None:
    with grpc.insecure_channel(server.target) as channel:
        request = pb.RepositoryModelLoadRequest(model_name=_MODEL)
        GRPCInferenceServiceStub(channel).RepositoryModelLoad(request, timeout=300)


def _alone(port: int, path: Path, *, hashes: bool) -> tuple[float, float]:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        "bucket", endpoint=f"http://127.0.0.1:{port}", client_options={"allow_http": True}
    )

    def fetch() -> None:
        digest = hashlib.sha256()
        with path.open("wb") as file, ThreadPoolExecutor(1) as hashing:
            for chunk in obstore.get(store, f"{_MODEL}/1/weights").stream(1 << 20):
                if hashes:
                    hashing.submit(digest.update, chunk)
                file.write(chunk)

    cpu = time.process_time()
    took = _timed(fetch)
    path.unlink()
    return took, time.process_time() - cpu


def _alone_elsewhere(
    port: int, path: Path, nice: int, *, hashes: bool = False
) -> tuple[float, float]:
    """The same download by a process of its own; the seconds that it took, without its start, and
    those of the processor.
    """
    context = get_context("spawn")
    took: Any = context.Queue()
    process = context.Process(target=_nicely, args=(port, path, nice, hashes, took))
    process.start()
    seconds: tuple[float, float] = took.get()
    process.join()
    return seconds


def _nicely(port: int, path: Path, nice: int, hashes: bool, took: Any) -> None:
    os.nice(nice)
    took.put(_alone(port, path, hashes=hashes))


def _two_busy(seconds: float) -> None:
    """Two processes of the low priority that hash what they have in memory."""
    context = get_context("spawn")
    processes = [context.Process(target=_hash, args=(seconds,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()


def _hash(seconds: float) -> None:
    os.nice(_NICE)
    block, end = bytes(1 << 20), time.perf_counter() + seconds
    while time.perf_counter() < end:
        hashlib.sha256(block)


def _p99(server: Server, work: Callable[[], object]) -> float:
    """The 99th percentile of calls of the small model while `work` is done, in seconds."""
    done = Event()
    times = list[float]()
    tensor = pb.ModelInferRequest.InferInputTensor(name="IN", datatype="FP32", shape=[4])
    request = pb.ModelInferRequest(
        model_name="small", inputs=[tensor], raw_input_contents=[bytes(16)]
    )

    def ask() -> None:
        with grpc.insecure_channel(server.target) as channel:
            stub = GRPCInferenceServiceStub(channel)
            stub.ModelInfer(request)
            while not done.is_set():
                times.append(_timed(lambda: stub.ModelInfer(request)))
                time.sleep(0.002)

    asking = Thread(target=ask)
    asking.start()
    work()
    done.set()
    asking.join()
    return statistics.quantiles(times, n=100)[-1]


# -- the store -------------------------------------------------------------------------------------


@contextmanager
def _store(folder: Path) -> Iterator[tuple[int, int]]:
    """A process that serves a folder as the bucket `bucket`; its port, and its number."""
    context = get_context("spawn")
    ports: Any = context.Queue()
    process = context.Process(target=_serve, args=(str(folder), ports), daemon=True)
    process.start()
    port = ports.get()
    assert process.pid is not None
    yield port, process.pid
    process.kill()
    process.join()


def _serve(folder: str, ports: Any) -> None:
    os.nice(_NICE)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bucket", (_Bucket,), {"folder": folder}))
    ports.put(server.server_port)
    server.serve_forever()


class _Bucket(BaseHTTPRequestHandler):
    folder: str
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits 40 ms behind its head

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        key = unquote(parts.path).removeprefix("/bucket").strip("/")
        if key:
            self._send(Path(self.folder, key))
        else:
            self._list({name: values[0] for name, values in parse_qs(parts.query).items()})

    def _send(self, path: Path) -> None:
        size = path.stat().st_size
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        begin, end = int(first), int(last or size - 1) + 1
        self.send_response(206 if "Range" in self.headers else 200)
        for name, value in {
            "ETag": _e_tag(path),
            "Last-Modified": formatdate(0, usegmt=True),
            "Content-Length": str(end - begin),
            "Content-Range": f"bytes {begin}-{end - 1}/{size}",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        with path.open("rb") as file:
            while begin < end:
                begin += os.sendfile(
                    self.connection.fileno(), file.fileno(), begin, min(end - begin, 1 << 22)
                )

    def _list(self, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        root = Path(self.folder)
        keys = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
        keys = [key for key in keys if key.startswith(prefix)]
        prefixes = {
            prefix + key.removeprefix(prefix).partition("/")[0] + "/"
            for key in keys
            if delimiter and "/" in key.removeprefix(prefix)
        }
        shown = [key for key in keys if not any(key.startswith(each) for each in prefixes)]
        stamp = datetime.fromtimestamp(0).strftime("%Y-%m-%dT%H:%M:%S.000Z")
        entries = (
            f"<Contents><Key>{escape(key)}</Key><LastModified>{stamp}</LastModified>"
            f"<ETag>{escape(_e_tag(root / key))}</ETag><Size>{(root / key).stat().st_size}</Size>"
            "</Contents>"
            for key in shown
        )
        common = (
            f"<CommonPrefixes><Prefix>{escape(p)}</Prefix></CommonPrefixes>" for p in prefixes
        )
        body = (
            f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(entries)}"
            f"{''.join(common)}</ListBucketResult>"
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _e_tag(path: Path) -> str:
    return f'"{path.stat().st_size:x}-{path.stat().st_mtime_ns:x}"'


if __name__ == "__main__":
    main()
