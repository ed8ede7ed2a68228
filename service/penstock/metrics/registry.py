"""`metrics_registry`: the door for users' own collectors of metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


def metrics_registry() -> CollectorRegistry:
    """The registry whose collectors are shown on the metrics page, beside the server's metrics.

    It is this process's: for code in the server process, such as a backend on threads. Register
    from any thread, and unregister in `finalize`; a name of the server's metrics, or that another
    collector has, is left out of the page. Collectors are asked at each scrape, on a thread of
    their own, and have a second.
    """
    # Imported where it is wanted: model processes need not have the package.
    from penstock.metrics.collectors import REGISTRY

    return REGISTRY
