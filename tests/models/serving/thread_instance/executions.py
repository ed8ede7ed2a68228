"""Instances of scripted backends, and what comes of an execution."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes import Script, execute, make_inference, marks, model_config
from penstock.core.backend import Backend, InstanceContext
from penstock.core.errors import InferenceError
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics
from penstock.models.serving.thread_instance import ThreadInstance


async def nowhere(function: Callable[..., Any], *args: Any) -> Awaitable[Any]:
    raise AssertionError("the instance has a thread of its own")


def thread_instance(backend: type[Backend]) -> ThreadInstance:
    context = InstanceContext("m_0", model_config(), 1, Path("/m/1"), nowhere)
    return ThreadInstance(backend, context)


@asynccontextmanager
async def started(script: Script) -> AsyncIterator[ThreadInstance]:
    instance = thread_instance(script.backend)
    await instance.start()
    yield instance
    await instance.stop()


async def executed(
    script: Script, ids: str = "a", statistics: Statistics | None = None
) -> list[Inference]:
    """Requests after an execution by an instance of the script's backend."""
    batch = [make_inference(id, statistics=statistics) for id in ids]
    async with started(script) as instance:
        await execute(instance, batch)
    return batch


async def failure(inference: Inference) -> InferenceError:
    with pytest.raises(InferenceError) as failed:
        await marks(inference.stream)
    return failed.value
