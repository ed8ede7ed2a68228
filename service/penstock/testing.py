"""The public test harness for backends: one instance of a model, run without a server.

    async with running(MyBackend, ModelConfig("m"), tmp_path) as instance:
        [response] = [r async for r in instance.infer({"IN": "text"})]
    assert response.outputs["OUT"].elements() == [b"TEXT"]

What is in `__all__` here is stable.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, cast

from penstock.core.backend import Backend, InstanceContext, Outcome
from penstock.core.config import ModelConfig
from penstock.core.delivery import deliver
from penstock.core.errors import InferenceError
from penstock.core.request import InferenceRequest, InferenceResponse, Parameters
from penstock.core.stream import ResponseStream
from penstock.model import Value, as_tensor

__all__ = ["RunningInstance", "Value", "as_tensor", "running"]


class RunningInstance:
    """One loaded instance, as `running` yields it."""

    def __init__(self, backend: Backend, config: ModelConfig) -> None:
        self.backend: Any = backend
        """The backend's object itself, of which a test knows the class."""
        self.config = config
        """The configuration as `complete_config` returned it."""

    async def infer(
        self, inputs: Mapping[str, Value], parameters: Parameters | None = None, **fields: Any
    ) -> AsyncGenerator[InferenceResponse, None]:
        """Execute a batch of one request, and yield its responses; closing this early cancels it.

        `inputs` are handed on as they are: of a model that batches, give them a batch dimension.
        `fields` are further fields of `InferenceRequest`, such as `id`, `requested_outputs` or
        `timeout` (microseconds). Raises the error that the backend answers with or raises.
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
    """One instance of `backend`, loaded as a server would: completed, checked, initialized.

    It runs in this process, on the test's event loop, whatever `Traits.host` says; its
    `InstanceContext.run` has a thread that ends with the block, as `finalize` is then awaited.
    `version_path` is the directory with the model's files, which may be empty. `settings` are what
    `--backend-config` would give (none by default); `kind` and `device_id` place the instance, and
    another kind than `KIND_CPU` is `KIND_GPU`. Of the server's own defaults and checks none are
    applied to `config`. Raises what the backend raises, such as `ConfigError`.
    """
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


def _runner(thread: ThreadPoolExecutor) -> Callable[..., Awaitable[Any]]:
    def run(function: Callable[..., Any], *arguments: Any) -> Awaitable[Any]:
        return asyncio.get_running_loop().run_in_executor(thread, function, *arguments)

    return run


async def _responses(outcome: Outcome) -> AsyncGenerator[InferenceResponse, None]:
    """The responses of any kind of outcome; a stream is closed with the generator."""
    if isinstance(outcome, InferenceError):
        raise outcome
    if callable(outcome):
        begin, outcome = outcome, ResponseStream()
        deliver(begin, outcome)
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
