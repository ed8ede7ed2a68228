"""Penstock on a Ray cluster: Ray decides where replicas run, and requests do not pass it.

    fleet = penstock.ray.start(FleetSettings(["--model-repository=/models"], "/etc/envoy/penstock"))
    fleet.load("encoder")

A replica is a whole server on a port of its node; a proxy finds it in the files that the controller
writes. `penstock.ray.serve_application` is the other way, behind Ray Serve's proxies. What is
decided is in modules that do not need Ray; `pip install 'penstock[ray]'` brings it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.ray.changes import NotAppliedError
from penstock.ray.replica_set import Pace
from penstock.ray.scaling import ScalingPolicy

if TYPE_CHECKING:
    from penstock.ray.fleet import Fleet, FleetSettings, connect, start

__all__ = [
    "Fleet",
    "FleetSettings",
    "NotAppliedError",
    "Pace",
    "ScalingPolicy",
    "connect",
    "start",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.ray import fleet

    return getattr(fleet, name)
