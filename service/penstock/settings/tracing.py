"""Settings of tracing: which requests are traced, and where traces go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

SAMPLERS = (
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
)
"""OpenTelemetry's names of samplers, as in `OTEL_TRACES_SAMPLER`."""

PROTOCOLS = ("http/protobuf", "grpc")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTelemetrySettings:
    """Traces as spans, sent to a collector (T-03, T-04); headers and TLS are the environment's.

    `url` is that of traces, empty for the exporter's default or the environment's. `resource` holds
    attributes in the order given, of which the last of a name counts. `bsp` is the batch span
    processor: spans that wait at most, milliseconds between exports, spans of one export at most.
    `sampler` is one of `SAMPLERS`, or empty for Triton's rule, which traces every request that has
    a caller's context; `ratio` is its argument. Requests that are not sampled are exported all the
    same if they take `slow_threshold_ms` (0 for never) or, with `always_on_error`, if they fail.
    """

    url: str = ""
    protocol: Literal["http/protobuf", "grpc"] = "http/protobuf"
    resource: tuple[tuple[str, str], ...] = ()
    bsp_max_queue_size: int = 2048
    bsp_schedule_delay: int = 5000
    bsp_max_export_batch_size: int = 512
    sampler: str = ""
    ratio: float = 1.0
    slow_threshold_ms: float = 0.0
    always_on_error: bool = False

    @property
    def tail_rule(self) -> bool:
        """Whether a request may be exported because of how it ended."""
        return self.always_on_error or self.slow_threshold_ms > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """Requests to trace; clients change all but `mode` and `file` while the server runs.

    `rate`: one request in so many, 0 for none but those with a caller's context; `count`: traces
    left to make, negative for no limit; `log_frequency`: traces in one file, 0 for all of them.
    """

    mode: Literal["triton", "opentelemetry"] = "triton"
    levels: frozenset[str] = frozenset()
    rate: int = 1000
    count: int = -1
    file: str = ""
    log_frequency: int = 0
    opentelemetry: OpenTelemetrySettings = field(default_factory=OpenTelemetrySettings)
