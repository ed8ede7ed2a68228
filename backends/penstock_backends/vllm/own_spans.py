"""vLLM's own spans: where they are sent, and which requests have them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, MutableMapping

from penstock.backend import OTLP_ENDPOINT, OTLP_PROTOCOL, Timeline
from penstock_backends.vllm.arguments.engine_args import EngineArguments

ARGUMENT = "otlp_traces_endpoint"

_EXPORT_SECONDS = "2"
"""Limit of one export: an unload waits for the last one, also if the collector is down."""


def add_endpoint(
    arguments: EngineArguments, environment: MutableMapping[str, str] = os.environ
) -> bool:
    """Have vLLM send its spans where the server sends its own; returns whether vLLM makes any.

    What `model.json` says comes first; `null` means no spans. Where the server gives the endpoint,
    only requests that it traces have spans, as the sampler here is set to follow the caller.
    """
    values = arguments.values
    if ARGUMENT in values:
        return bool(values[ARGUMENT])
    endpoint = environment.get(OTLP_ENDPOINT, "")
    if not endpoint or not _available():
        return False
    values[ARGUMENT] = endpoint
    environment["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = environment[OTLP_PROTOCOL]
    environment["OTEL_TRACES_SAMPLER"] = "parentbased_always_off"
    if "OTEL_EXPORTER_OTLP_TIMEOUT" not in environment:
        environment.setdefault("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", _EXPORT_SECONDS)
    if "service.name=" not in environment.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        environment.setdefault("OTEL_SERVICE_NAME", "vllm")
    # The server logs once a minute that a collector is down; the SDK here would at each export.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    return True


def trace_headers(timeline: Timeline) -> Mapping[str, str] | None:
    """The span that vLLM's are children of, as headers; `None` if the trace is not exported."""
    context = timeline.context
    if not context.sampled:
        return None
    headers = {"traceparent": context.traceparent}
    return headers | {"tracestate": context.state} if context.state else headers


def _available() -> bool:
    """Whether vLLM finds OpenTelemetry; with an endpoint and without it, it would not start."""
    try:
        from vllm.tracing import is_tracing_available
    except ImportError:
        return False
    return bool(is_tracing_available())
