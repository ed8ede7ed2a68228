"""The first message on a link, INITIALIZE: an instance's context as plain values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypedDict

from penstock.core.backend import InstanceContext
from penstock.core.config import config_from_json, config_to_json
from penstock.core.flow_control import Window
from penstock.core.full_names import split_name
from penstock.core.placement import Placement


class Introduction(TypedDict):
    """The header of an INITIALIZE message: an `InstanceContext`, and how its process is to run.

    `pulse` is the descriptor of the process's end of the pulse. `spans` says whether requests may
    come with the context of a trace that takes spans of the model's own. `usage` says whether the
    tokens of each request are to be reported. `model` is the name of the model without a namespace.
    """

    pulse: int
    spans: bool
    usage: bool
    target: str
    serial: bool
    window: tuple[int, int]
    name: str
    model: str
    config: dict[str, Any]
    version: int
    version_path: str
    kind: str
    device_id: int
    settings: dict[str, str]
    host_policy: str
    placement: dict[str, Any]
    passive: bool
    profiles: list[str]
    secondary_devices: list[tuple[str, int]]


class Launch(Protocol):
    """The part of a process specification that the process itself has to know."""

    @property
    def target(self) -> str:
        """The backend's class, as `module:name`."""

    @property
    def serial(self) -> bool:
        """Whether batches are executed one after the other."""

    @property
    def window(self) -> Window:
        """Responses that may be in flight to a reader."""

    @property
    def usage(self) -> bool:
        """Whether the tokens of each request are to be reported."""


def introduce(launch: Launch, context: InstanceContext, pulse: int, *, spans: bool) -> Introduction:
    """The introduction of an instance, as plain values."""
    return {
        "pulse": pulse,
        "spans": spans,
        "usage": launch.usage,
        "target": launch.target,
        "serial": launch.serial,
        "window": (launch.window.responses, launch.window.size),
        "name": context.name,
        "model": split_name(context.config.name)[1],
        "config": config_to_json(context.config, with_defaults=True),
        "version": context.version,
        "version_path": str(context.version_path),
        "kind": context.kind,
        "device_id": context.device_id,
        "settings": dict(context.settings),
        "host_policy": context.host_policy,
        "placement": asdict(context.placement),
        "passive": context.passive,
        "profiles": list(context.profiles),
        "secondary_devices": list(context.secondary_devices),
    }


def instance_context(introduction: Introduction, run: Callable[..., Any]) -> InstanceContext:
    """The context that was introduced; `run` runs a function on the instance's thread."""
    return InstanceContext(
        name=introduction["name"],
        config=config_from_json(introduction["config"]),
        version=introduction["version"],
        version_path=Path(introduction["version_path"]),
        run=run,
        kind=introduction["kind"],
        device_id=introduction["device_id"],
        settings=introduction["settings"],
        passive=introduction["passive"],
        host_policy=introduction["host_policy"],
        placement=Placement(**introduction["placement"]),
        profiles=tuple(introduction["profiles"]),
        secondary_devices=tuple(
            (kind, number) for kind, number in introduction["secondary_devices"]
        ),
    )
