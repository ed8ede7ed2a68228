"""The endpoints of health, metadata, configuration and statistics (contract H-01 to H-07)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.core.config import config_to_json
from penstock.gateway.connections.http_call import HttpCall
from penstock.gateway.replies import PLAIN, Reply, error_reply, json_reply, reply
from penstock.gateway.router import Target
from penstock.inflight.statistics import Duration
from penstock.models.serving.answers import ModelStatistics, TensorMetadata
from penstock.server.server import InferenceServer


class ServerEndpoints:
    """Health and metadata of the server."""

    def __init__(self, server: InferenceServer) -> None:
        self._server = server

    async def live(self, _: HttpCall, __: Target) -> Reply:
        return _health(await self._server.live())

    async def ready(self, _: HttpCall, __: Target) -> Reply:
        return _health(await self._server.ready())

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

    def __init__(self, server: InferenceServer) -> None:
        self._server = server

    async def ready(self, _: HttpCall, target: Target) -> Reply:
        if await self._server.model_ready(target.model, target.version):
            return _health(True)
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
        return json_reply({"model_stats": [_statistics(model) for model in models]})


def _health(good: bool) -> Reply:
    return reply(status=200 if good else 400, content_type=PLAIN)


def _tensors(tensors: Iterable[TensorMetadata]) -> list[dict[str, Any]]:
    return [{"name": t.name, "datatype": t.datatype, "shape": list(t.shape)} for t in tensors]


_DURATIONS = (
    "success",
    "fail",
    "queue",
    "compute_input",
    "compute_infer",
    "compute_output",
    "cache_hit",
    "cache_miss",
)
_RESPONSE_DURATIONS = (
    "compute_infer",
    "compute_output",
    "success",
    "fail",
    "empty_response",
    "cancel",
)
_BATCH_DURATIONS = ("compute_input", "compute_infer", "compute_output")


def _statistics(model: ModelStatistics) -> dict[str, Any]:
    counted = model.statistics
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": counted.last_inference,
        "inference_count": counted.inference_count,
        "execution_count": counted.execution_count,
        "inference_stats": {name: _duration(getattr(counted, name)) for name in _DURATIONS},
        "response_stats": {
            str(index): {name: _duration(getattr(one, name)) for name in _RESPONSE_DURATIONS}
            for index, one in sorted(counted.responses.items())
        },
        "batch_stats": [
            {"batch_size": size}
            | {name: _duration(getattr(batch, name)) for name in _BATCH_DURATIONS}
            for size, batch in sorted(counted.batches.items())
        ],
        "memory_usage": [],
    }


def _duration(duration: Duration) -> dict[str, int]:
    return {"count": duration.count, "ns": duration.ns}
