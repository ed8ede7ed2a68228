"""Requests to a real engine, whichever it is, and what it is busy with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import numpy as np

from penstock.core.request import InferenceResponse, RequestScope, Sender
from penstock.core.tensor import DataType, Tensor
from penstock.core.timeline import Timeline
from penstock.testing import RunningInstance

PROMPT = "The with statement is used to"
GREEDY = {"temperature": 0, "ignore_eos": True}


def start(
    instance: RunningInstance,
    prompt: str = PROMPT,
    *,
    inputs: Any = None,
    traced_by: Timeline | None = None,
    sender: Sender | None = None,
    **sampling: Any,
) -> AsyncGenerator[InferenceResponse, None]:
    """A streamed request, unless `inputs` say otherwise; `traced_by` is its timeline.

    `sender` is who sends it, as a server with tenants tells.
    `input_ids` among the inputs take the place of the prompt.
    """
    tensors = {
        "text_input": prompt,
        "stream": True,
        "sampling_parameters": json.dumps(GREEDY | sampling),
        **(inputs or {}),
    }
    if "input_ids" in tensors:
        del tensors["text_input"]
    return instance.infer(tensors, scope=RequestScope(timeline=traced_by, sender=sender))


def plain(response: InferenceResponse) -> dict[str, Any]:
    """The outputs of a response, as lists."""
    return {
        name: [e.decode() for e in t.elements()] if t.datatype == "BYTES" else t.numpy().tolist()
        for name, t in response.outputs.items()
    }


def token_ids(*tokens: int) -> Tensor:
    """A tensor of token ids."""
    return Tensor.from_numpy(np.array(tokens, np.int32), DataType.INT32)


def usage(instance: RunningInstance) -> tuple[float, float, float]:
    """Requests that run, requests that wait, and the part of the cache that they take."""
    metrics = instance.backend.metrics()
    return (
        metrics["penstock_llm_running_requests"],
        metrics["penstock_llm_waiting_requests"],
        metrics["penstock_llm_kv_cache_usage"],
    )


async def until(condition: Callable[[], bool], pause: float = 0.0) -> None:
    """Let the engine step until `condition` holds; without a `pause`, ask after each turn."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the engine tells nobody
            await asyncio.sleep(pause)
