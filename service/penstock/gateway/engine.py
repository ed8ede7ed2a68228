"""The endpoints of commands to engines, and of their adapters (with `--allow-engine-control`)."""

from __future__ import annotations

from typing import Any

from penstock.core.errors import InvalidRequestError
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.control_bodies import ControlBodies
from penstock.gateway.json.fields import ABSENT
from penstock.gateway.replies import Reply, json_reply
from penstock.gateway.router import Target
from penstock.server.server import InferenceServer

LIST, ADD, REMOVE = "list-adapters", "add-adapter", "remove-adapter"
"""Actions of `Backend.control` that have paths of their own."""


class EngineEndpoints:
    """Handlers of `.../engine/{action}` and `.../adapters`; a body is an object of arguments."""

    def __init__(self, server: InferenceServer, bodies: ControlBodies) -> None:
        self._server = server
        self._bodies = bodies

    async def act(self, call: HttpCall, target: Target) -> Reply:
        return await self._control(target, target.action, await self._arguments(call, target))

    async def adapters(self, _: HttpCall, target: Target) -> Reply:
        return await self._control(target, LIST, {})

    async def change_adapter(self, call: HttpCall, target: Target) -> Reply:
        """Add an adapter, or remove one."""
        named = {"name": target.adapter}
        if call.method == "DELETE":
            return await self._control(target, REMOVE, named)
        return await self._control(target, ADD, {**await self._arguments(call, target), **named})

    async def _arguments(self, call: HttpCall, target: Target) -> dict[str, Any]:
        """The arguments of a command, which are read only where commands may be given at all."""
        self._server.check_engine_control(target.model, target.version)
        return await self._bodies.read(call, _arguments, optional=True)

    async def _control(self, target: Target, action: str, arguments: dict[str, Any]) -> Reply:
        done = await self._server.control(target.model, target.version, action, arguments)
        return json_reply(
            {"model_name": done.name, "model_version": done.version, "instances": done.instances}
        )


def _arguments(body: Any) -> dict[str, Any]:
    if body is ABSENT:
        return {}
    if not isinstance(body, dict):
        raise InvalidRequestError("the body must be a JSON object of arguments")
    return body
