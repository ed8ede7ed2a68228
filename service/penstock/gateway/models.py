"""The endpoints of health, metadata, configuration and statistics (contract H-01 to H-07)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.core.config import config_to_json
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.json.text import dump
from penstock.gateway.replies import PLAIN, Reply, error_reply, json_reply, reply
from penstock.gateway.router import Target
from penstock.models.serving.answers import TensorMetadata
from penstock.server.answers import RESIDENT
from penstock.server.faces import Views
from penstock.server.statistics_json import statistics_json


class ServerEndpoints:
    """Health and metadata of the server."""

    def __init__(self, server: Views) -> None:
        self._server = server

    async def live(self, _: HttpCall, __: Target) -> Reply:
        return _health("live", await self._server.live())

    async def ready(self, _: HttpCall, __: Target) -> Reply:
        return _health("ready", await self._server.ready())

    async def metadata(self, _: HttpCall, __: Target) -> Reply:
        metadata = await self._server.metadata()
        return json_reply(
            {
                "name": metadata.name,
                "version": metadata.version,
                "extensions": list(metadata.extensions),
            }
        )


class ModelEndpoints:
    """Health, metadata, configuration and statistics of a model."""

    def __init__(self, server: Views) -> None:
        self._server = server

    async def ready(self, _: HttpCall, target: Target) -> Reply:
        if await self._server.model_ready(target.model, target.version):
            answer = json_reply({"name": target.model, "ready": True})
            if (resident := self._server.resident(target.model)) is not None:
                answer.add_header(RESIDENT, str(resident).lower())
            return answer
        return error_reply("Model version not ready", 400, PLAIN)

    async def metadata(self, _: HttpCall, target: Target) -> Reply:
        metadata = await self._server.model_metadata(target.model, target.version)
        return json_reply(
            {
                "name": metadata.name,
                "versions": list(metadata.versions),
                "platform": metadata.platform,
                "inputs": _tensors(metadata.inputs),
                "outputs": _tensors(metadata.outputs),
            }
        )

    async def config(self, _: HttpCall, target: Target) -> Reply:
        config = await self._server.model_config(target.model, target.version)
        return json_reply(config_to_json(config, with_defaults=True))

    async def statistics(self, _: HttpCall, target: Target) -> Reply:
        models = await self._server.statistics(target.model, target.version)
        return json_reply({"model_stats": [statistics_json(model) for model in models]})


def _health(name: str, good: bool) -> Reply:
    """The status that clients of Triton look at, and the body of the Open Inference Protocol."""
    return reply(dump({name: good}), 200 if good else 400)


def _tensors(tensors: Iterable[TensorMetadata]) -> list[dict[str, Any]]:
    return [{"name": t.name, "datatype": t.datatype, "shape": list(t.shape)} for t in tensors]
