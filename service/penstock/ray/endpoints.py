"""Files of endpoints, in which a proxy finds the replicas: what Envoy's EDS reads and watches.

Nothing here knows Ray. `deploy/proxies/envoy-ray.yaml` has the other side.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROTOCOLS = ("grpc", "http")
"""Each has a file `NAME.json` with a cluster of its name: Envoy takes one cluster of a file."""

_ASSIGNMENT = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
_LOAD_BALANCER = "envoy.lb"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A replica as a proxy sees it.

    `models` are those it has loaded, aliases among them. One that is `draining` gets nothing
    new, and what it has goes on.
    """

    name: str
    host: str
    grpc: int
    http: int
    models: tuple[str, ...] = ()
    draining: bool = False


def assignment(protocol: str, endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """What Envoy is told of a protocol's cluster: a discovery response with one assignment.

    Its version is made of its contents, and endpoints stand in the order of their names, so that
    the same replicas are the same file. The metadata `model` is a list, of which the balancer
    looks for one (`list_as_any`).
    """
    listed = [_listed(protocol, each) for each in sorted(endpoints, key=lambda each: each.name)]
    resource = {
        "@type": _ASSIGNMENT,
        "cluster_name": protocol,
        "endpoints": [{"lb_endpoints": listed}],
    }
    text = json.dumps(resource, sort_keys=True)
    return {
        "version_info": hashlib.sha256(text.encode()).hexdigest()[:16],
        "resources": [resource],
    }


def _listed(protocol: str, endpoint: Endpoint) -> dict[str, Any]:
    port = {"grpc": endpoint.grpc, "http": endpoint.http}[protocol]
    address = {"socket_address": {"address": endpoint.host, "port_value": port}}
    return {
        "endpoint": {"address": address, "hostname": endpoint.name},
        "health_status": "DRAINING" if endpoint.draining else "HEALTHY",
        "metadata": {"filter_metadata": {_LOAD_BALANCER: {"model": sorted(endpoint.models)}}},
    }


class EndpointFiles:
    """The files in a folder, written when the endpoints have changed, whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._written: Sequence[Endpoint] | None = None

    def write(self, endpoints: Sequence[Endpoint]) -> bool:
        """Write the files if they say something else; whether they did. Raises `OSError`."""
        if endpoints == self._written:
            return False
        self._folder.mkdir(parents=True, exist_ok=True)
        for protocol in PROTOCOLS:
            replace(self._folder / f"{protocol}.json", assignment(protocol, endpoints))
        self._written = endpoints
        return True


def replace(file: Path, value: Any) -> None:
    """Write a value as JSON in place of what the file has; readers see one or the other.

    Envoy notices files that are moved to their place, and no others.
    """
    new = file.with_name(f".{file.name}.new")
    with new.open("w", encoding="utf-8") as output:
        json.dump(value, output, indent=1)
        output.flush()
        os.fsync(output.fileno())
    new.rename(file)
