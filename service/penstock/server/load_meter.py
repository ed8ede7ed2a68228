"""`LoadMeter`: how busy the server is, for load balancers that weigh servers by it (ORCA)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import orjson

from penstock.metrics.exposition import Family
from penstock.models.serving.answers import Gauge, ModelStatistics, is_alike

FORMAT = "endpoint-load-metrics-format"
"""Header and metadata key of a client that wants a report with its answer: `text` or `json`."""

REPORT = "endpoint-load-metrics"
"""Header and trailing metadata of a report as text."""

_TRT_LLM = "nv_trt_llm_kv_cache_block_metrics"
_FRESH_SECONDS = 0.1
_RATE_SECONDS = 1.0


class Machine(Protocol):
    """The usage of the machine."""

    def utilization(self) -> float: ...
    def memory(self) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True)
class LoadReport:
    """A load report of ORCA: fractions of the machine, rates a second, and named metrics.

    `kv_cache` are those of the named metrics that Triton reports: `kv_cache_utilization`, and
    `max_token_capacity` where the model tells its blocks.
    """

    cpu_utilization: float = 0.0
    mem_utilization: float = 0.0
    rps_fractional: float = 0.0
    eps: float = 0.0
    kv_cache: Mapping[str, float] = field(default_factory=dict)
    queue: Mapping[str, float] = field(default_factory=dict)

    @property
    def named_metrics(self) -> dict[str, float]:
        return {**self.kv_cache, **self.queue}

    def text(self, form: str) -> str | None:
        """The whole report as `json` or `text`; `None` for any other form."""
        numbers = {
            "cpu_utilization": self.cpu_utilization,
            "mem_utilization": self.mem_utilization,
            "rps_fractional": self.rps_fractional,
            "eps": self.eps,
        }
        return _formatted(form, numbers, self.named_metrics)

    def kv_cache_text(self, form: str) -> str | None:
        """The part of it that Triton's HTTP endpoint tells (HG-14); `None` without a KV cache."""
        return _formatted(form, {}, self.kv_cache) if self.kv_cache else None


def _formatted(form: str, numbers: Mapping[str, float], named: Mapping[str, float]) -> str | None:
    if form == "json":
        return "JSON " + orjson.dumps({**numbers, "named_metrics": named}).decode()
    if form == "text":
        named = {f"named_metrics.{name}": value for name, value in named.items()}
        return "TEXT " + ", ".join(f"{n}={_number(v)}" for n, v in {**numbers, **named}.items())
    return None


def _number(value: float) -> str:
    """As C++'s `std::to_string` writes it."""
    return str(value) if isinstance(value, int) else f"{value:f}"


class LoadMeter:
    """Makes load reports of the server's own counters, when it is asked.

    A report is made anew after a tenth of a second, its rates after a second: they are averages
    since the report before. `machine` and `custom`, the models' own metrics, are plugged in.
    """

    def __init__(
        self,
        snapshot: Callable[[], Iterable[ModelStatistics]],
        gauges: Callable[[], Iterable[Gauge]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._snapshot = snapshot
        self._gauges = gauges
        self._clock = clock
        self._machine: Machine | None = None
        self._custom: Callable[[], Iterable[Family]] = tuple
        self._report = LoadReport()
        self._made = -_FRESH_SECONDS + clock()
        self._rates = _Rates(clock())

    def plug_in(self, machine: Machine, custom: Callable[[], Iterable[Family]]) -> None:
        """Read the machine, and the models' own metrics, from now on."""
        self._machine = machine
        self._custom = custom

    def report(self) -> LoadReport:
        """The load of now, or of a tenth of a second ago."""
        now = self._clock()
        if now - self._made >= _FRESH_SECONDS:
            self._made = now
            self._report = self._measured(now)
        return self._report

    def _measured(self, now: float) -> LoadReport:
        models = [model.statistics for model in self._snapshot()]
        succeeded = sum(counted.success.count for counted in models)
        failed = sum(counted.fail.count for counted in models)
        self._rates.update(now, succeeded + failed, failed)
        engines = _sums(self._gauges())
        used, total = self._machine.memory() if self._machine is not None else (0, 0)
        return LoadReport(
            self._machine.utilization() if self._machine is not None else 0.0,
            used / total if total else 0.0,
            self._rates.requests,
            self._rates.errors,
            self._kv_cache(engines),
            {
                "queue_depth": sum(counted.pending for counted in models),
                **{
                    f"llm_{name}_requests": int(engines[gauge])
                    for name in ("running", "waiting")
                    if (gauge := f"penstock_llm_{name}_requests") in engines
                },
            },
        )

    def _kv_cache(self, engines: Mapping[str, float]) -> Mapping[str, float]:
        """From TensorRT-LLM's metric, as in Triton, or else from that of our own engines."""
        blocks = {
            dict(series.labels).get("kv_cache_block_type", ""): series.value
            for family in self._custom()
            if family.name == _TRT_LLM
            for series in family.series
        }
        blocks |= {
            name: engines[gauge]
            for name in ("tokens_per", "used", "max")
            if (gauge := f'{_TRT_LLM}{{kv_cache_block_type="{name}"}}') in engines
        }
        if all(blocks.get(name, -1) >= 0 for name in ("tokens_per", "used", "max")):
            used = blocks["used"] / blocks["max"] if blocks["max"] else 0.0
            capacity = int(blocks["max"] * blocks["tokens_per"])
            return {"kv_cache_utilization": used, "max_token_capacity": capacity}
        usage = engines.get("penstock_llm_kv_cache_usage")
        return {} if usage is None else {"kv_cache_utilization": usage}


def _sums(gauges: Iterable[Gauge]) -> dict[str, float]:
    """The gauges of engines by name: the fullest KV cache, and sums of all others."""
    found: dict[str, float] = {}
    for gauge in gauges:
        before = found.get(gauge.name, 0.0)
        both = max if is_alike(gauge.name) else float.__add__
        found[gauge.name] = both(before, float(gauge.value))
    return found


class _Rates:
    """Requests and errors a second, of two counters."""

    def __init__(self, now: float) -> None:
        self.requests = 0.0
        self.errors = 0.0
        self._since = now
        self._counted = (0, 0)

    def update(self, now: float, requests: int, errors: int) -> None:
        """Take the counters' values of now, unless the last ones are younger than a second."""
        seconds = now - self._since
        if seconds < _RATE_SECONDS:
            return
        former_requests, former_errors = self._counted
        # Counters go back when models are unloaded.
        self.requests = max(requests - former_requests, 0) / seconds
        self.errors = max(errors - former_errors, 0) / seconds
        self._since, self._counted = now, (requests, errors)
