"""Closed loops of calls on a server, put on and timed by the processes of `penstock perf`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from penstock_client.perf.load.job import Payload
from penstock_client.perf.load.plan import Limits, Point, Traffic
from penstock_client.perf.load.results import Floats, Mask
from penstock_client.perf.measure import Measured, measure
from penstock_client.perf.server_side import Observer
from penstock_client.perf.wire import grpc, http
from penstock_client.perf.wire.endpoint import Endpoint

_SERVICE = "/inference.GRPCInferenceService/"
_CONNECTIONS = 4
_DRAIN = 600.0  # seconds for the last of calls that are counted
_WARM_UP = 0.3


@dataclass(frozen=True, slots=True)
class Load:
    """`in_flight` loops that call for `seconds`, behind a short warm-up.

    A message is a serialized `ModelInferRequest`, or with a `path` the body of a POST over HTTP,
    with `headers`; `certificates` are the files of the authority to trust, of the client's
    certificate and of its key, for TLS. Where there are `further` messages, calls take them in
    turns. With `rounds` each loop calls so many times instead, so that none is cut off at the end.
    `connections` are the most of gRPC; over HTTP each loop has its own.
    """

    target: str
    message_file: str
    in_flight: int
    seconds: float = 0.0
    stream: bool = False
    further: tuple[str, ...] = ()
    rounds: int = 0
    connections: int = _CONNECTIONS
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    certificates: tuple[str, str, str] = ("", "", "")

    @property
    def calls(self) -> int:
        """The number of calls in all, where one is given."""
        return self.rounds * self.in_flight


@dataclass(frozen=True, slots=True)
class Outcome:
    """Counts of the loops in `seconds`: calls that ended and messages (tokens) that came.

    Latencies, and times to the first message, are in milliseconds. `all_calls` and `all_messages`
    are those of the warm-up, too, as the CPU time of the server is.
    """

    calls: int
    messages: int
    seconds: float
    latency_p50: float
    latency_p99: float
    first_p50: float
    first_p99: float
    all_calls: int
    all_messages: int

    @property
    def calls_per_second(self) -> float:
        return self.calls / self.seconds


def run(load: Load) -> Outcome:
    """Put the load on; ends the run where a call failed."""
    limits = Limits(
        duration=load.seconds,
        warmup=0.0 if load.rounds else _WARM_UP,
        requests=load.calls,
        drain=_DRAIN,
        connections=min(load.connections, load.in_flight),
    )
    point = Point(concurrency=load.in_flight)
    measured = measure(_traffic(load), point, limits, Observer(), lambda progress: None)
    problems = [*measured.problems, *measured.results.error_counts()]
    if problems or measured.interrupted:
        raise SystemExit(f"a load on {load.target} failed: {'; '.join(problems)}")
    return _outcome(measured)


def _traffic(load: Load) -> Traffic:
    host, _, port = load.target.rpartition(":")
    root, certificate, key = load.certificates
    endpoint = Endpoint(
        host,
        int(port),
        bool(root),
        root_certificates=root,
        certificate=certificate,
        private_key=key,
    )
    bodies = [Path(file).read_bytes() for file in (load.message_file, *load.further)]
    if load.path:
        head = http.request_head(endpoint, load.path, load.headers, "application/json")
    else:
        method = "ModelStreamInfer" if load.stream else "ModelInfer"
        head = grpc.request_head(endpoint, _SERVICE + method, load.headers)
    payloads = tuple(Payload(head, body) for body in bodies)
    return Traffic(endpoint, bool(load.path), load.stream, payloads)


def _outcome(measured: Measured) -> Outcome:
    results, begin, end = measured.results, measured.begin, measured.end
    ended = results.answered & _within(results.end, begin, end)
    began = (results.first > 0) & _within(results.first, begin, end)
    messages = np.count_nonzero(began) + np.count_nonzero(_within(results.gap_times, begin, end))
    latencies = (results.end - results.start)[ended]
    firsts = (results.first - results.start)[began]
    return Outcome(
        int(np.count_nonzero(ended)),
        int(messages),
        end - begin,
        _percentile(latencies, 50),
        _percentile(latencies, 99),
        _percentile(firsts, 50),
        _percentile(firsts, 99),
        int(np.count_nonzero(results.answered)),
        int(results.responses.sum()),
    )


def _within(times: Floats, begin: float, end: float) -> Mask:
    return np.asarray((times >= begin) & (times <= end))


def _percentile(seconds: Floats, percent: float) -> float:
    return float(np.percentile(seconds, percent)) * 1e3 if len(seconds) else 0.0
