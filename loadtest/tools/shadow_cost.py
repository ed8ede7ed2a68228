"""Processor time that an alias takes for a request, with a shadow and without.

    python -m loadtest.tools.shadow_cost

Requests come without a pause, as from clients in a closed loop, so that copies wait but for one a
second; the model behind the alias answers at once and costs next to nothing. It is processor time,
which what else runs on the machine lengthens by little. Medians of turns, in microseconds.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

from loadtest.report import Row, show
from penstock.core.request import InferenceRequest, InferenceResponse, RequestScope
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.models.releases.alias_model import AliasModel
from penstock.models.releases.definition import parse_alias

_REQUESTS = 10_000
_TURNS = 9
_TENSOR = Tensor.from_numpy(np.zeros(16, np.float32))


def _infer(_: InferenceRequest) -> ResponseStream:
    stream = ResponseStream()
    stream.send(InferenceResponse({"Y": _TENSOR}, final=True))
    return stream


def _alias(percent: float) -> AliasModel:
    config = SimpleNamespace(parameter=lambda _: None)
    model: Any = SimpleNamespace(infer=_infer, config=config, decoupled=False)
    fields: dict[str, Any] = {"targets": [{"model": "old"}]}
    if percent:
        fields["shadow"] = {"model": "new", "percent": percent}
    return AliasModel(parse_alias("alias", fields), lambda _, __: model, lambda: 0.0)


async def _microseconds(alias: AliasModel) -> float:
    used = time.process_time()
    for _ in range(_REQUESTS):
        request = InferenceRequest("alias", inputs={"X": _TENSOR}, scope=RequestScope())
        async for _ in alias.infer(request):
            pass
    return 1e6 * (time.process_time() - used) / _REQUESTS


async def _measured() -> list[Row]:
    aliases = {percent: _alias(percent) for percent in (0, 10, 100)}
    found: dict[int, list[float]] = {percent: [] for percent in aliases}
    for _ in range(_TURNS):
        for percent, alias in aliases.items():
            found[percent].append(await _microseconds(alias))
    for alias in aliases.values():
        if alias.shadow is not None:
            await alias.shadow.close()
    return [{"percent": p, "us": statistics.median(times)} for p, times in found.items()]


if __name__ == "__main__":
    show("an alias's processor time for a request", asyncio.run(_measured()), None)
