"""Starting model processes whose backend is `hosted.puppet`, and telling it what to do."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import penstock
from fakes import execute
from penstock.core.backend import InstanceContext
from penstock.core.config import ModelConfig
from penstock.core.placement import Placement
from penstock.core.request import InferenceRequest, InferenceResponse, ParameterValue, RequestScope
from penstock.core.tensor import Tensor
from penstock.hosting.parent.process import ProcessInstance, ProcessSpec
from penstock.hosting.parent.services import ModelServices
from penstock.hosting.parent.starter import ProcessStarter
from penstock.inflight.inference import Inference
from penstock.inflight.statistics import Statistics
from penstock.system.model_variables import passed_on
from penstock.system.own_cores import OwnCores
from penstock.system.reaper import Reaper

PACKAGES = (Path(penstock.__file__).parent, Path(__file__).parent / "hosted")
MODEL = "puppet"
NOTHING: Mapping[str, Tensor] = {}
PATIENCE = 60.0
"""Seconds in which anything that shall happen has happened, on a busy machine too."""


class Puppets:
    """The model processes of one test, and the reaper that knows them."""

    def __init__(self) -> None:
        self.reaper = Reaper()
        self.starter = ProcessStarter(self.reaper)
        self.statistics = Statistics()
        self._made: list[ProcessInstance] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(instance.stop() for instance in self._made))
        await self.starter.close()
        self.reaper.close()

    def make(
        self,
        *,
        target: str = "hosted.puppet:Puppet",
        name: str = f"{MODEL}_0_0",
        serial: bool = False,
        packages: tuple[Path, ...] = PACKAGES,
        python: str = sys.executable,
        execution_timeout: float | None = None,
        stop_timeout: float = PATIENCE,
        placement: Placement | None = None,
        own_cores: OwnCores | None = None,
        private_tmp: bool = False,
        hang_seconds: float = 0.0,
        restart_hung: bool = False,
        controlled: bool = True,
        services: ModelServices | None = None,
        usage: bool = False,
        spare: bool = False,
        environment: Mapping[str, str] | None = None,
        **settings: str,
    ) -> ProcessInstance:
        """An instance that is not started; `settings` are those of the backend."""
        spec = ProcessSpec(
            target,
            serial,
            packages,
            python,
            execution_timeout=execution_timeout,
            stop_timeout=stop_timeout,
            private_tmp=private_tmp,
            hang_seconds=hang_seconds,
            restart_hung=restart_hung,
            controlled=controlled,
            usage=usage,
            spare=spare,
            environment=passed_on(os.environ) if environment is None else environment,
        )
        context = InstanceContext(
            name=name,
            config=ModelConfig(name=MODEL),
            version=1,
            version_path=Path("/models/puppet/1"),
            run=_nowhere,
            settings=settings,
            placement=placement or Placement(),
        )
        instance = ProcessInstance(spec, context, self.starter, services, own_cores)
        self._made.append(instance)
        return instance

    async def start(self, **how: Any) -> ProcessInstance:
        """An instance that serves; for what may be said of it see `make`."""
        instance = self.make(**how)
        await instance.start()
        return instance

    def tell(
        self, instance: ProcessInstance, *requests: InferenceRequest
    ) -> tuple[list[Inference], asyncio.Task[None]]:
        """Have a batch executed; its inferences, and the end of its execution."""
        batch = [Inference(request, 1, self.statistics) for request in requests]
        return batch, asyncio.ensure_future(execute(instance, batch))

    def begin(self, instance: ProcessInstance, do: str, **parameters: ParameterValue) -> Inference:
        """Have one request executed; its responses are on the inference's stream."""
        (inference,), _ = self.tell(instance, order(do, NOTHING, **parameters))
        return inference

    async def ask(
        self, instance: ProcessInstance, do: str, **parameters: ParameterValue
    ) -> InferenceResponse:
        """The one response to a request; raises the error that it ends with."""
        (response,) = await everything(self.begin(instance, do, **parameters))
        return response

    async def report(self, instance: ProcessInstance, key: str) -> Any:
        """What the backend knows about itself; see `Puppet.report`."""
        return (await self.ask(instance, "report")).parameters[key]

    async def settle(self, instance: ProcessInstance) -> None:
        """Give the process turns to do what it is going to do."""
        for _ in range(5):
            await self.report(instance, "made")


def order(
    do: str, inputs: Mapping[str, Tensor] = NOTHING, **parameters: ParameterValue
) -> InferenceRequest:
    """A request that tells the backend what to do."""
    parameters = {"do": do, **parameters}
    return InferenceRequest(MODEL, inputs=inputs, parameters=parameters, scope=RequestScope())


async def everything(inference: Inference) -> list[InferenceResponse]:
    """Every response to a request; raises the error that it ends with."""
    async with asyncio.timeout(PATIENCE):
        return [response async for response in inference.stream]


def numbers(responses: list[InferenceResponse]) -> list[int]:
    """What the responses of `Puppet.stream` and its like hold."""
    return [int(response.outputs["OUT"].numpy()[0]) for response in responses]


async def eventually(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait until `condition` holds; fails when it does not within `PATIENCE`."""
    async with asyncio.timeout(PATIENCE):
        while True:
            holds = condition()
            if await holds if isinstance(holds, Awaitable) else holds:
                return
            await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def descriptors() -> int:
    """Files that this process holds open."""
    return len(os.listdir("/proc/self/fd"))


async def _nowhere(*_: Any) -> Any:
    raise AssertionError("nothing of a model runs here")
