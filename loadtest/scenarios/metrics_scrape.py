"""Scrapes of many models: how long one takes, and how long other clients wait beside it.

    python -m loadtest.scenarios.metrics_scrape --models 200 --json figures.json

Every model is asked a few times first. Then a client reads the page again and again, while another
asks over gRPC whether the server lives. `scrape ms` is the fastest whole scrape (the machine may be
busy), `median ms` the median; `CPU ms` what the server used for one. `wait ms` is the 99th
percentile of what the other client waited for its answers, `idle ms` the same while nobody scraped,
`longest ms` the longest that it waited. COMMAND of `--peer` starts a build to compare with.
"""

from __future__ import annotations

import shlex
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event

import grpc
import numpy as np
import tritonclient.grpc as grpcclient

from loadtest.process import Server, peer, penstock
from loadtest.report import Row, arguments, median_rows, show
from penstock.protocol import grpc_service_pb2 as pb

_PAUSE_SECONDS = 0.001
_SCRAPES = 20

_CONFIG = """
backend: "identity"
max_batch_size: 8
dynamic_batching { }
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 1 ] } ]
"""
_DISTRIBUTIONS = (
    "--metrics-config=histogram_latencies=true",
    "--metrics-config=summary_latencies=true",
)
_FORMS = {"text": "text/plain", "OpenMetrics": "application/openmetrics-text"}


def main() -> None:
    parser = arguments(__doc__, timed=False)
    parser.add_argument("--models", type=int, default=200)
    parser.add_argument("--peer", default="", help="the command of a build to compare with")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        models = Path(temporary)
        for number in range(options.models):
            (models / f"model_{number}" / "1").mkdir(parents=True)
            (models / f"model_{number}" / "config.pbtxt").write_text(_CONFIG)
        command = shlex.split(options.peer)
        rows = median_rows(options.rounds, lambda: list(_rows(models, command, options.models)))
    show(f"scrapes of {options.models} models", rows, options.json)


def _rows(models: Path, command: Sequence[str], count: int) -> Iterator[Row]:
    for metrics, flags in (("default", ()), ("all", _DISTRIBUTIONS)):
        builds: dict[str, AbstractContextManager[Server]] = {}
        if command:
            builds["before"] = peer([*command, *flags], models)
        builds["now"] = penstock(models, *flags)
        for build, starting in builds.items():
            with starting as server:
                _ask_each(server, count)
                for form, accept in _FORMS.items():
                    if build == "now" or form == "text":
                        shape = {"build": build, "metrics": metrics, "form": form}
                        yield shape | _measure(server, accept)


def _ask_each(server: Server, count: int) -> None:
    tensor = grpcclient.InferInput("IN", [1, 1], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 1), np.float32))
    with grpcclient.InferenceServerClient(server.target) as client:
        for number in [*range(count)] * 3:
            client.infer(f"model_{number}", [tensor])


def _measure(server: Server, accept: str) -> dict[str, float | str]:
    page = urllib.request.Request(
        f"http://127.0.0.1:{server.metrics_port}/metrics", headers={"Accept": accept}
    )

    def scrape() -> tuple[float, int]:
        begin = time.perf_counter()
        with urllib.request.urlopen(page) as answer:
            text = answer.read()
        return time.perf_counter() - begin, text.count(b"\n") - text.count(b"\n#")

    _, series = scrape()  # the first page prepares what the others repeat
    idle = _waits(server, lambda: time.sleep(1))
    took: list[float] = []
    cpu = server.own_cpu_seconds()
    busy = _waits(server, lambda: took.extend(scrape()[0] for _ in range(_SCRAPES)))
    cpu = server.own_cpu_seconds() - cpu
    return {
        "series": series,
        "scrape ms": min(took) * 1e3,
        "median ms": statistics.median(took) * 1e3,
        "CPU ms": cpu / _SCRAPES * 1e3,
        "idle ms": _percentile(idle),
        "wait ms": _percentile(busy),
        "longest ms": max(busy) * 1e3,
    }


def _percentile(waits: Sequence[float]) -> float:
    return statistics.quantiles(waits, n=100)[-1] * 1e3


def _waits(server: Server, work: Callable[[], None]) -> list[float]:
    """Seconds that a client waited for each of its answers during `work`."""
    done = Event()
    with ThreadPoolExecutor(1) as thread:
        waits = thread.submit(_probe, server, done)
        try:
            work()
        finally:
            done.set()
        return waits.result()


def _probe(server: Server, done: Event) -> list[float]:
    waits: list[float] = []
    with grpc.insecure_channel(server.target) as channel:
        live = channel.unary_unary(
            "/inference.GRPCInferenceService/ServerLive",
            pb.ServerLiveRequest.SerializeToString,
            pb.ServerLiveResponse.FromString,
        )
        live(pb.ServerLiveRequest(), timeout=60)
        while not done.is_set():
            begin = time.perf_counter()
            live(pb.ServerLiveRequest(), timeout=60)
            waits.append(time.perf_counter() - begin)
            time.sleep(_PAUSE_SECONDS)
    return waits


if __name__ == "__main__":
    main()
