"""Opens what traces go to: in the OpenTelemetry mode the exporter process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from penstock import __version__
from penstock.core.exit_deadline import ExitDeadline
from penstock.settings import Settings
from penstock.tracing.export import ExportSettings, TraceExport

_LONGEST_FLUSH = 5.0
"""Seconds that the exit waits at most for a collector of traces."""


@asynccontextmanager
async def open_export(
    settings: Settings, deadline: ExitDeadline
) -> AsyncIterator[TraceExport | None]:
    """The sink of traces in the OpenTelemetry mode; `None` in the other."""
    if settings.trace.mode != "opentelemetry":
        yield None
        return
    export = TraceExport(export_settings(settings))
    export.start()
    try:
        yield export
    finally:
        await export.close(min(deadline.left(), _LONGEST_FLUSH))


def export_settings(settings: Settings) -> ExportSettings:
    """The settings of the export; a `url` without a scheme is one of HTTP, as in Triton."""
    given = settings.trace.opentelemetry
    url = given.url if not given.url or "://" in given.url else f"http://{given.url}"
    return ExportSettings(
        __version__,
        settings.id,
        given.protocol,
        url,
        dict(given.resource),
        given.bsp_max_queue_size,
        given.bsp_schedule_delay,
        given.bsp_max_export_batch_size,
    )
