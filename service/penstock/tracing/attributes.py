"""Attributes of spans, after the semantic conventions of OpenTelemetry."""

from __future__ import annotations

import re
from collections.abc import Mapping

from penstock.core.timeline import Fact

_PEER = re.compile(r"(ipv[46]):\[?(.*?)\]?:([0-9]+)")
_ROUTE = re.compile(r"(/v2/models/)[^/]+(?:(/versions/)[^/]+)?(/.*)?")


def named(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Facts under the names of conventions, which have a dot in them, or else under our own."""
    return {name if "." in name else f"penstock.{name}": fact for name, fact in facts.items()}


def endpoint_attributes(facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """The facts of the endpoint, with the peer's address taken apart and the path's route."""
    attributes = named(facts)
    peer = attributes.get("network.peer.address")
    if isinstance(peer, str):
        attributes |= _peer(peer)
    path = attributes.get("url.path")
    if isinstance(path, str) and (found := _ROUTE.fullmatch(path)):
        models, versions, rest = found.groups("")
        version = f"{versions}{{version}}" if versions else ""
        attributes["http.route"] = f"{models}{{model}}{version}{rest}"
    return attributes


def _peer(peer: str) -> dict[str, Fact]:
    """Address, port and kind of network of a peer as gRPC names it: `ipv4:HOST:PORT`."""
    if found := _PEER.fullmatch(peer):
        kind, host, port = found.groups()
        return {
            "network.type": kind,
            "network.transport": "tcp",
            "network.peer.address": host,
            "network.peer.port": int(port),
        }
    if peer.startswith("unix:"):
        return {"network.transport": "unix", "network.peer.address": peer.removeprefix("unix:")}
    return {}
