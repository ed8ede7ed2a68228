"""Where the engines of models find the collector that the server sends its spans to."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.core.backend import OTLP_ENDPOINT, OTLP_PROTOCOL
from penstock.settings import TraceSettings

_DEFAULTS = {
    "http/protobuf": "http://localhost:4318/v1/traces",
    "grpc": "http://localhost:4317",
}


def model_environment(settings: TraceSettings, variables: Mapping[str, str]) -> dict[str, str]:
    """Variables for model processes: none, where the server does not export spans.

    The URL is that of the settings, or else what OpenTelemetry's `variables` say or leave out:
    of two, the one for traces, and to the one for all signals HTTP adds a path (OpenTelemetry
    Protocol Exporter, endpoint URLs).
    """
    if settings.mode != "opentelemetry":
        return {}
    mode = settings.opentelemetry
    url = mode.url or variables.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip()
    if not url and (base := variables.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip()):
        url = base if mode.protocol == "grpc" else f"{base.rstrip('/')}/v1/traces"
    return {OTLP_ENDPOINT: url or _DEFAULTS[mode.protocol], OTLP_PROTOCOL: mode.protocol}
