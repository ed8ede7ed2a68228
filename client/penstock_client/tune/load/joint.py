"""One load on several models of a server at the same time, and their figures together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from penstock_client.tune.choice import MODELS, Figures
from penstock_client.tune.load.load_test import Measurement
from penstock_client.tune.load.loads import Load

_SUMS = ("requests", "failed", "cut_off", "throughput", "inferences_per_second")
_SUMS_OF_SOME = ("goodput", "responses_per_second", "tokens_per_second")
_OF_THE_SERVER = ("memory_bytes", "model_memory_bytes", "gpu_memory_bytes")


class AnyTest(Protocol):
    """A test that puts a load on and measures it."""

    def measure(self, load: Load) -> Measurement:
        """Put on one load; raises `PerfError` if nothing can be sent."""


class JointTest:
    """Puts the same load on each of several models, by a thread for each."""

    def __init__(self, tests: Mapping[str, AnyTest]) -> None:
        self._tests = tests

    def measure(self, load: Load) -> Measurement:
        """Put on one load, and wait for all, also where one fails or at Ctrl-C; `PerfError`."""
        with ThreadPoolExecutor(len(self._tests)) as threads:
            futures = [threads.submit(test.measure, load) for test in self._tests.values()]
            found = [future.result() for future in futures]
        figures = {name: each.figures for name, each in zip(self._tests, found, strict=True)}
        return Measurement(combined(figures), any(each.interrupted for each in found))


def combined(models: Mapping[str, Figures]) -> dict[str, Any]:
    """Figures of several models: sums of rates, the worst of latencies, and each model's own."""
    all_of_them = list(models.values())
    first = all_of_them[0]
    found: dict[str, Any] = {
        "load": dict(first["load"]),
        "seconds": max(each["seconds"] for each in all_of_them),
        **{name: sum(each[name] for each in all_of_them) for name in _SUMS},
        "errors": dict(sum((Counter(each["errors"]) for each in all_of_them), Counter())),
        "latency_ms": _worst([each["latency_ms"] for each in all_of_them]),
        "client": _client([each["client"] for each in all_of_them]),
        "problems": [problem for each in all_of_them for problem in each["problems"]],
        MODELS: dict(models),
    }
    found["server"] = _server([each["server"] for each in all_of_them], found["throughput"])
    for name in _SUMS_OF_SOME:
        if known := [each[name] for each in all_of_them if name in each]:
            found[name] = sum(known)
    found |= {name: _most(each.get(name) for each in all_of_them) for name in _OF_THE_SERVER}
    return found


def _worst(latencies: Sequence[Mapping[str, float] | None]) -> dict[str, float] | None:
    """The largest of each percentile; `None` where a model has answered nothing."""
    known = [each for each in latencies if each is not None]
    if len(known) < len(latencies):
        return None
    return {name: max(each[name] for each in known) for name in known[0]}


def _client(clients: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "busy": sum(each["busy"] for each in clients),
        "machine_busy": max(each["machine_busy"] for each in clients),
    }


def _server(servers: Sequence[Mapping[str, Any]], throughput: float) -> dict[str, Any]:
    """CPU time of the one server, whichever model it was for."""
    cores = _most(each.get("cpu_cores") for each in servers)
    if cores is None:
        return {}
    return {
        "cpu_cores": cores,
        "cpu_us_per_request": cores / throughput * 1e6 if throughput else None,
    }


def _most(values: Iterable[float | None]) -> float | None:
    return max((each for each in values if each is not None), default=None)
