"""The cost of traces and of scrapes: the same load on servers that differ in nothing else.

    python -m loadtest.scenarios.tracing --peer "COMMAND"

COMMAND starts the build to compare with, one without tracing, and takes the usual options. The
servers run beside each other and are measured in turns. `front us` is the CPU time of the first
process, where requests are served, a call (or a response); `all us` that of all its processes, an
exporter's included. `over us` and `over %` are what a call costs `front` more than in the build to
compare with, or, without one, than with tracing off.
"""

from __future__ import annotations

import shlex
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from loadtest.load import Load
from loadtest.process import Server, collector, peer, penstock
from loadtest.python_models import write_python_models
from loadtest.report import Row, arguments, median_rows, show
from loadtest.scenarios.peer import Case, cases, check, measured

_CASES = {("identity 64 B", 8), ("identity 64 B", 32), ("count, 500 responses", 8)}


@dataclass(frozen=True, slots=True)
class _Variant:
    """A server in one state; its metrics may be scraped each second."""

    name: str
    server: Server
    scraped: bool = False


def _start(servers: ExitStack, models: Path, directory: Path, command: str) -> Iterator[_Variant]:
    """Every variant; the first is what the others are compared with."""
    if command:
        yield _Variant("build before", servers.enter_context(peer(shlex.split(command), models)))
    off = servers.enter_context(penstock(models))
    yield _Variant("off", off)
    yield _Variant("off, scraped", off, scraped=True)
    url = f"opentelemetry,url=http://127.0.0.1:{servers.enter_context(collector())}/v1/traces"
    for share, rate in (("1 %", "rate=100"), ("100 %", "rate=1")):
        file = f"triton,file={directory / rate}"
        kinds = {"file": (file, "triton,log-frequency=1000"), "otel": ("mode=opentelemetry", url)}
        for kind, own in kinds.items():
            options = ("level=TIMESTAMPS", rate, *own)
            flags = (f"--trace-config={option}" for option in options)
            yield _Variant(f"{kind}, {share}", servers.enter_context(penstock(models, *flags)))


@contextmanager
def _scraping(server: Server) -> Iterator[None]:
    """Read the metrics page once a second."""
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(1.0):
            urllib.request.urlopen(f"http://127.0.0.1:{server.metrics_port}/metrics").read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--peer", default="", help="command that starts the build before")
    options = parser.parse_args()
    chosen = [case for case in cases() if (case.name, case.in_flight) in _CASES]
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as servers:
        directory = Path(temporary)
        models = directory / "models"
        write_python_models(models)
        variants = list(_start(servers, models, directory, options.peer))
        for case in chosen:
            for variant in variants:
                check(variant.server, case)

        def measure() -> list[Row]:
            return [
                row for case in chosen for row in _rows(directory, variants, case, options.seconds)
            ]

        rows = _compared(median_rows(options.rounds, measure), len(variants))
    show("What traces and scrapes cost", rows, options.json)


def _rows(
    directory: Path, variants: Sequence[_Variant], case: Case, seconds: float
) -> Iterator[Row]:
    file = directory / "message"
    file.write_bytes(case.message.SerializeToString())
    for variant in variants:
        server = variant.server
        load = Load(
            server.target, str(file), case.in_flight, seconds, case.stream, rounds=case.rounds
        )
        with _scraping(server) if variant.scraped else nullcontext():
            run = measured(server, load)
        yield {
            "case": case.name,
            "in flight": str(case.in_flight),
            "server": variant.name,
            "rate": run.outcome.calls_per_second * case.responses,
            "front us": run.front,
            "all us": run.cpu,
            "p50 ms": run.outcome.latency_p50,
            "p99 ms": run.outcome.latency_p99,
        }


def _compared(rows: Sequence[Row], variants: int) -> list[Row]:
    """The rows with what each costs more than the first variant of its case."""
    compared: list[Row] = []
    for number, row in enumerate(rows):
        first = float(rows[number - number % variants]["front us"])
        over = float(row["front us"]) - first
        compared.append({**row, "over us": over, "over %": 100 * over / first})
    return compared


if __name__ == "__main__":
    main()
