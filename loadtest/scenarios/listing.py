"""A poll of a repository with very many objects: seconds, and memory of the process that polls.

    python -m loadtest.scenarios.listing --rounds 3 --keys 100000

One process stands for a store, which sends S3's pages of 1,000 keys as quickly as it can. Beside it
stands the same listing by `obstore` alone, whose objects are thrown away.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from typing import Any
from urllib.parse import parse_qs, urlsplit

from loadtest.report import Row, arguments, median_rows, show

_KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
_ON_PAGE = 1000
_BESIDE = 20
"""Objects of a model."""
_ENTRY = (
    "<Contents><Key>{}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
    "<ETag>&quot;{:032x}&quot;</ETag><Size>{}</Size><StorageClass>STANDARD</StorageClass>"
    "</Contents>"
)
_FOLDER = "<CommonPrefixes><Prefix>{}/</Prefix></CommonPrefixes>"
_TOKEN = "<NextContinuationToken>{}</NextContinuationToken>"
_PAGE = "<ListBucketResult><IsTruncated>{more}</IsTruncated>{token}{entries}</ListBucketResult>"


def main() -> None:
    parser = arguments(__doc__, timed=False)
    parser.add_argument("--keys", type=int, default=100_000)
    options = parser.parse_args()
    os.environ.update(_KEYS)
    with _store(options.keys) as port:
        rows = median_rows(options.rounds, lambda: [_measure(port)])
    show(f"a listing of {options.keys} keys", rows, options.json)


def _measure(port: int) -> Row:
    alone, _, cpu_alone = _elsewhere(_obstore, port)
    seconds, grown, cpu = _elsewhere(_polled, port)
    return {
        "poll s": seconds,
        "obstore alone s": alone,
        "ratio": seconds / alone,
        "cpu s": cpu,
        "obstore cpu s": cpu_alone,
        "memory MiB": grown,
    }


def _elsewhere(work: Callable[[int], tuple[float, float, float]], port: int) -> Any:
    context = get_context("spawn")
    told: Any = context.Queue()
    process = context.Process(target=_run, args=(work, port, told))
    process.start()
    found = told.get()
    process.join()
    return found


def _run(work: Callable[[int], tuple[float, float, float]], port: int, told: Any) -> None:
    told.put(work(port))


def _polled(port: int) -> tuple[float, float, float]:
    from penstock.models.remote.remote_repositories import RemoteRepositories

    with tempfile.TemporaryDirectory() as folder:
        repositories = RemoteRepositories(folder, 0, os.environ)
        repository = repositories.open(f"s3://http://127.0.0.1:{port}/bucket")
        return _taken(repository.states)


def _obstore(port: int) -> tuple[float, float, float]:
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        "bucket", endpoint=f"http://127.0.0.1:{port}", client_options={"allow_http": True}
    )
    return _taken(lambda: sum(len(batch) for batch in obstore.list(store, chunk_size=_ON_PAGE)))


def _taken(work: Callable[[], object]) -> tuple[float, float, float]:
    """Seconds, MiB by which the process grew at most, and seconds of the processor."""
    before, begin, cpu = _peak(), time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - begin, _peak() - before, time.process_time() - cpu


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


# -- the store -------------------------------------------------------------------------------------


@contextmanager
def _store(keys: int) -> Iterator[int]:
    """A process that lists so many keys; its port."""
    context = get_context("spawn")
    ports: Any = context.Queue()
    process = context.Process(target=_serve, args=(keys, ports), daemon=True)
    process.start()
    yield ports.get()
    process.kill()
    process.join()


def _serve(keys: int, ports: Any) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Listing)
    entries = [_ENTRY.format(_key(at), at << 90, at) for at in range(keys)]
    models = dict.fromkeys(_key(at).partition("/")[0] for at in range(0, keys, _BESIDE))
    _Listing.keys = _pages(entries)
    _Listing.folders = _pages([_FOLDER.format(each) for each in models])
    ports.put(server.server_port)
    server.serve_forever()


def _key(at: int) -> str:
    return f"model-{at // _BESIDE:06}/1/shards/weights-{at:08}.bin"


def _pages(entries: Sequence[str]) -> list[bytes]:
    return [
        _PAGE.format(
            more=str(end < len(entries)).lower(),
            token=_TOKEN.format(end // _ON_PAGE) if end < len(entries) else "",
            entries="".join(entries[end - _ON_PAGE : end]),
        ).encode()
        for end in range(_ON_PAGE, len(entries) + _ON_PAGE, _ON_PAGE)
    ]


class _Listing(BaseHTTPRequestHandler):
    keys: list[bytes]
    folders: list[bytes]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits 40 ms behind its head

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        pages = self.folders if "delimiter" in query else self.keys
        body = pages[int(query.get("continuation-token", ["0"])[0])]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    main()
