"""For authors of backends: run one instance of a model without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np

from penstock.core.backend import Backend, InstanceContext, Outcome
from penstock.core.config import ModelConfig
from penstock.core.errors import InferenceError
from penstock.core.request import InferenceRequest, InferenceResponse, Parameters
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Array, DataType, Tensor

Value = Tensor | Array | str | bytes | bool | Sequence[str | bytes]
"""What may stand for a tensor: a string or boolean is one of shape [1], a list one of strings."""


class RunningInstance:
    """One loaded instance; `backend` is the object itself, `config` its completed configuration."""

    def __init__(self, backend: Backend, config: ModelConfig) -> None:
        self.backend = backend
        self.config = config

    async def infer(
        self, inputs: Mapping[str, Value], parameters: Parameters | None = None, **fields: Any
    ) -> AsyncGenerator[InferenceResponse, None]:
        """The responses to one request; closing the generator early cancels it.

        Raises the error that the backend answers with. `fields` are further fields of
        `InferenceRequest`.
        """
        request = InferenceRequest(
            self.config.name,
            inputs={name: as_tensor(value) for name, value in inputs.items()},
            parameters=parameters or {},
            **fields,
        )
        (outcome,) = await self.backend.execute([request])
        async with aclosing(_responses(outcome)) as responses:
            async for response in responses:
                yield response


@asynccontextmanager
async def running(
    backend: type[Backend],
    config: ModelConfig,
    version_path: Path,
    settings: Mapping[str, str] | None = None,
    *,
    kind: str = "KIND_CPU",
    device_id: int = 0,
) -> AsyncIterator[RunningInstance]:
    """One instance of `backend`, loaded as a server would: completed, checked, initialized."""
    given = settings or {}
    completed = await backend.complete_config(config, version_path, given)
    backend.check_config(completed)
    instance = backend()
    with ThreadPoolExecutor(1, f"{config.name}_0") as thread:
        await instance.initialize(
            InstanceContext(
                name=f"{config.name}_0",
                config=completed,
                version=1,
                version_path=version_path,
                run=_runner(thread),
                kind=kind,
                device_id=device_id,
                settings=given,
            )
        )
        try:
            yield RunningInstance(instance, completed)
        finally:
            await instance.finalize()


def as_tensor(value: Value) -> Tensor:
    """The tensor that `value` stands for."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, bool):
        return Tensor.from_numpy(np.array([value]), DataType.BOOL)
    if isinstance(value, np.ndarray):
        return Tensor.from_numpy(value)
    return Tensor.from_strings([value] if isinstance(value, str | bytes) else value)


def _runner(thread: ThreadPoolExecutor) -> Callable[..., Awaitable[Any]]:
    def run(function: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
        return asyncio.get_running_loop().run_in_executor(thread, function, *arguments)

    return run


async def _responses(outcome: Outcome) -> AsyncGenerator[InferenceResponse, None]:
    """The responses of any kind of outcome; a stream is closed with the generator."""
    if isinstance(outcome, InferenceError):
        raise outcome
    if isinstance(outcome, InferenceResponse):
        yield outcome
    elif isinstance(outcome, ResponseStream):
        try:
            async for response in outcome:
                yield response
        finally:
            outcome.close()
    else:
        async with aclosing(cast(AsyncGenerator[InferenceResponse, None], outcome)) as responses:
            async for response in responses:
                yield response
