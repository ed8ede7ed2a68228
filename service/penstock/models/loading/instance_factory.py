"""`InstanceFactory`: creates the instances of a model, on threads or in processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.core.backend import Backend, InstanceContext
from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig
from penstock.core.errors import ConfigError
from penstock.core.placement import Placement, parse_cores
from penstock.hosting.parent.child import ProcessSpec
from penstock.hosting.parent.process import ProcessInstance
from penstock.hosting.parent.services import ModelServices
from penstock.models.loading.process_spec import (
    ENGINE_CORES,
    process_spec,
    refuse_process_parameters,
)
from penstock.models.loading.token_queues import wants_usage
from penstock.models.serving.instance import ModelInstance
from penstock.models.serving.limited_instance import LimitedInstance, resource_claim
from penstock.models.serving.thread_instance import ThreadInstance
from penstock.scheduling.rate_limiter import RateLimiter
from penstock.system.own_cores import OwnCores
from penstock.system.reaper import Reaper

BackendSettingsOf = Callable[[str], Mapping[str, str]]


class InstanceFactory:
    """Creates instances on the host their model chooses, behind the rate limiter, if any.

    `services` handle the calls of model processes to the server (BLS), `environment` has variables
    of these processes besides those of the server's that are passed on; set before the first load.
    """

    def __init__(
        self,
        settings_of: BackendSettingsOf,
        reaper: Reaper,
        limiter: RateLimiter | None,
        placements: Mapping[str, Placement],
        max_responses: int | None = None,
        tenants: bool = False,
    ) -> None:
        self._settings_of = settings_of
        self._reaper = reaper
        self._limiter = limiter
        self._placements = placements
        self._max_responses = max_responses
        self._tenants = tenants
        self._own_cores = OwnCores()
        self.services: ModelServices | None = None
        self.environment: Mapping[str, str] = {}

    async def interpreter(
        self, backend: type[Backend], config: ModelConfig, path: Path
    ) -> str | None:
        """Path of the Python that the model's processes run; `None` for the server's own."""
        return await backend.interpreter(config, path, self._settings_of(config.backend))

    def instances(
        self,
        backend: type[Backend],
        config: ModelConfig,
        version: int,
        path: Path,
        interpreter: str | None,
    ) -> list[ModelInstance]:
        """The instances that the configuration declares, not started."""
        make = self._maker(backend, config, interpreter)
        settings = self._settings_of(config.backend)
        contexts = instance_contexts(config, version, path, settings, self._placements)
        return [self._limited(make(c), group, c.device_id) for group, c in contexts]

    def _maker(
        self, backend: type[Backend], config: ModelConfig, interpreter: str | None
    ) -> Callable[[InstanceContext], ModelInstance]:
        host = host_of(backend, config)
        if host == "thread" and backend.host == "thread":
            refuse_process_parameters(config)
            return lambda context: ThreadInstance(backend, context)
        if host == "process":
            usage = wants_usage(backend, config, tenants=self._tenants)
            spec = process_spec(
                backend, config, interpreter, self._max_responses, self.environment, usage=usage
            )
            return lambda context: self._process(spec, context)
        allowed = " or ".join(f"'{one}'" for one in dict.fromkeys((backend.host, "process")))
        raise ConfigError(f"parameter 'penstock.host' must be {allowed}, got '{host}'")

    def _process(self, spec: ProcessSpec, context: InstanceContext) -> ProcessInstance:
        """An instance in a process, which has cores for itself where its model says so."""
        text = context.config.parameter(ENGINE_CORES)
        if text is None:
            return ProcessInstance(spec, context, self._reaper, self.services)
        cores = parse_cores(f"parameter '{ENGINE_CORES}'", text)
        if problem := self._own_cores.problem(range(cores[0], cores[1] + 1)):
            raise ConfigError(f"parameter '{ENGINE_CORES}' cannot be '{text}': {problem}")
        context = replace(context, placement=replace(context.placement, cores=cores))
        return ProcessInstance(spec, context, self._reaper, self.services, self._own_cores)

    def _limited(self, instance: ModelInstance, group: InstanceGroup, device: int) -> ModelInstance:
        """The instance behind the rate limiter, where its group declares resources."""
        if self._limiter is None or group.rate_limiter is None or instance.passive:
            return instance
        turn = resource_claim(group.rate_limiter, device)
        return LimitedInstance(instance, self._limiter, turn)


def host_of(backend: type[Backend], config: ModelConfig) -> str:
    """The host of the model's instances: `thread` or `process`."""
    return config.parameter("penstock.host") or backend.host


def instance_contexts(
    config: ModelConfig,
    version: int,
    version_path: Path,
    settings: Mapping[str, str],
    placements: Mapping[str, Placement],
) -> Iterator[tuple[InstanceGroup, InstanceContext]]:
    """The context of each instance, with its group; `placements` are by host policy."""
    for group in config.instance_group:
        for device in group.gpus or (0,):
            policy = group.policy(device)
            for number in range(group.count):
                suffix = f"_gpu{device}" if group.kind is InstanceKind.KIND_GPU else ""
                yield (
                    group,
                    InstanceContext(
                        name=f"{group.name}_{number}{suffix}",
                        config=config,
                        version=version,
                        version_path=version_path,
                        run=_no_thread,
                        kind=group.kind.value,
                        device_id=device,
                        settings=settings,
                        passive=group.passive,
                        host_policy=policy,
                        placement=placements.get(policy, Placement()),
                        profiles=group.profile,
                        secondary_devices=tuple(
                            (d.kind.value, d.device_id) for d in group.secondary_devices
                        ),
                    ),
                )


async def _no_thread(function: Callable[..., Any], *args: Any) -> Awaitable[Any]:
    raise AssertionError("the instance sets `run` in its context before the backend uses it")
