"""`Fleet`: what a program does with replicas on Ray: starts them, loads models, updates, stops."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from time import monotonic, sleep
from typing import Any

import ray
from google.protobuf.json_format import ParseDict
from ray.exceptions import RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol import releases_pb2 as releases
from penstock.ray.changes import NotAppliedError
from penstock.ray.controller import NAMESPACE, ControllerActor, FleetSettings
from penstock.ray.scaling import ScalingPolicy

__all__ = ["Fleet", "FleetSettings", "NotAppliedError", "connect", "start"]

_ASK_SECONDS = 0.5


class Fleet:
    """A fleet by the handle of its controller; any number of programs may have one."""

    def __init__(self, controller: Any) -> None:
        self._controller = controller

    def status(self) -> dict[str, Any]:
        """Replicas by name with their state, node, addresses and models; the last failure."""
        status: dict[str, Any] = _got(self._controller.status.remote())
        return status

    def wait(self, replicas: int, seconds: float = 600.0) -> dict[str, Any]:
        """The status, once so many serve and none else comes or goes. Raises `TimeoutError`."""
        end = monotonic() + seconds
        while True:
            status = self.status()
            found = status["replicas"].values()
            current = [each for each in found if each["generation"] == status["generation"]]
            if len(found) == replicas == len([e for e in current if e["state"] == "ready"]):
                return status
            if monotonic() > end:
                raise TimeoutError(f"not {replicas} replicas in time: {json.dumps(status)}")
            sleep(_ASK_SECONDS)

    def load(
        self,
        model: str,
        config: Mapping[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> dict[str, str]:
        """Load a model on all replicas, and on those to come; what some refused, by their names.

        `config` and `files` stand in for the repository's. Raises `NotAppliedError` where all have
        refused it, with the code of the gRPC status. Where no replica serves it is recorded, and
        made on those to come: what these lack is in the status.
        """
        request = pb.RepositoryModelLoadRequest(model_name=model)
        if config is not None:
            request.parameters["config"].string_param = json.dumps(config)
        for name, contents in (files or {}).items():
            request.parameters[f"file:{name}"].bytes_param = contents
        return self._change("load", request)

    def unload(self, model: str, dependents: bool = False) -> dict[str, str]:
        """Unload a model from all replicas, as `load` loads it."""
        request = pb.RepositoryModelUnloadRequest(model_name=model)
        if dependents:
            request.parameters["unload_dependents"].bool_param = True
        return self._change("unload", request)

    def set_alias(self, name: str, definition: Mapping[str, Any]) -> dict[str, str]:
        """Set an alias on all replicas: `targets`, `sticky`, `guard`, `shadow`."""
        request = releases.AliasSetRequest(name=name)
        ParseDict(definition, request.definition)
        return self._change("alias", request)

    def remove_alias(self, name: str) -> dict[str, str]:
        """Remove an alias from all replicas."""
        return self._change("remove_alias", releases.AliasRemoveRequest(name=name))

    def _change(self, kind: str, request: Any) -> dict[str, str]:
        message = request.SerializeToString()
        refused: dict[str, str] = _got(self._controller.change.remote(kind, message))
        return refused

    def update(self, arguments: Sequence[str] | None = None) -> None:
        """Begin a rolling update: each replica gives way to one with these arguments."""
        _got(self._controller.update.remote(arguments))

    def scale(self, policy: ScalingPolicy) -> None:
        """Have another scaling policy from now on."""
        _got(self._controller.scale.remote(policy))

    def stop(self) -> None:
        """End all replicas with what they have in flight, and the controller."""
        _got(self._controller.stop.remote())
        ray.kill(self._controller)


def start(settings: FleetSettings) -> Fleet:
    """Start a fleet whose controller stays on this node of Ray, where its files are; it goes on
    when this program ends. Raises `ValueError` where one of this name runs.
    """
    node = ray.get_runtime_context().get_node_id()
    controller = ray.remote(ControllerActor).options(
        name=settings.name,
        namespace=NAMESPACE,
        lifetime="detached",
        num_cpus=0,
        max_restarts=-1,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
    )
    fleet = Fleet(controller.remote(settings))
    fleet.status()  # it answers, or raises why it cannot start
    return fleet


def connect(name: str = "fleet") -> Fleet:
    """A fleet that runs. Raises `ValueError` where there is none of this name."""
    return Fleet(ray.get_actor(name, namespace=NAMESPACE))


def _got(answer: Any) -> Any:
    """What an actor answers, or raises, without Ray's traceback around it."""
    try:
        return ray.get(answer)
    except RayTaskError as error:
        raise error.cause from None
