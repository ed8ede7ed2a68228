"""`InstanceFactory`: creates the instances of a model, on threads or in processes, whose command,
settings and limits follow from its configuration.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any

from penstock.core.backend import (
    Backend,
    Controllable,
    InstanceContext,
    WithApplication,
    WithInterpreter,
)
from penstock.core.config import InstanceGroup, ModelConfig
from penstock.core.errors import ConfigError
from penstock.core.flow_control import Window
from penstock.core.placement import Placement, parse_cores
from penstock.hosting.parent.child import ProcessSpec
from penstock.hosting.parent.process import ProcessInstance
from penstock.hosting.parent.services import ModelServices
from penstock.hosting.parent.starter import ProcessStarter
from penstock.models.loading.token_queues import wants_usage
from penstock.models.serving.instance import ModelInstance
from penstock.models.serving.limited_instance import LimitedInstance, resource_claim
from penstock.models.serving.thread_instance import ThreadInstance
from penstock.scheduling.rate_limiter import RateLimiter
from penstock.system.model_variables import passed_on
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
        spare_processes: int = 0,
    ) -> None:
        self._settings_of = settings_of
        self.starter = ProcessStarter(reaper, spare_processes)
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
        settings = self._settings_of(config.backend)
        if issubclass(backend, WithInterpreter):
            return await backend.interpreter(config, path, settings)
        return settings.get("python")

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

    def prepare(self, backend: type[Backend], config: ModelConfig) -> str:
        """Have spare processes for models like this one, where its backend has such.

        Returns the module to import for those on threads, empty where there is none.
        """
        python = self._settings_of(config.backend).get("python")
        if (spec := self._spec(backend, config, python)) is not None:
            self.starter.keep(spec)
            return ""
        return backend.traits.engine if self.starter.has_spares else ""

    def _maker(
        self, backend: type[Backend], config: ModelConfig, interpreter: str | None
    ) -> Callable[[InstanceContext], ModelInstance]:
        spec = self._spec(backend, config, interpreter)
        if spec is None:
            infer = None if self.services is None else self.services.infer
            return lambda context: ThreadInstance(backend, replace(context, infer=infer))
        return lambda context: self._process(spec, context)

    def _spec(
        self, backend: type[Backend], config: ModelConfig, interpreter: str | None
    ) -> ProcessSpec | None:
        spec = hosting(
            backend,
            config,
            interpreter,
            self._max_responses,
            self.environment,
            tenants=self._tenants,
        )
        own_python = interpreter != self._settings_of(config.backend).get("python")
        if spec is None or own_python or spec.private_tmp or not backend.traits.spare:
            return spec
        return replace(spec, spare=True)

    def _process(self, spec: ProcessSpec, context: InstanceContext) -> ProcessInstance:
        """An instance in a process, with cores for itself and a limit where its model says so."""
        if (limit := memory_limit(context.config)) is not None:
            context = replace(context, placement=replace(context.placement, memory=limit))
        cores = engine_cores(context.config)
        if cores is None:
            return ProcessInstance(spec, context, self.starter, self.services)
        if problem := self._own_cores.problem(range(cores[0], cores[1] + 1)):
            text = context.config.parameter(ENGINE_CORES)
            raise ConfigError(f"parameter '{ENGINE_CORES}' cannot be '{text}': {problem}")
        context = replace(context, placement=replace(context.placement, cores=cores))
        return ProcessInstance(spec, context, self.starter, self.services, self._own_cores)

    def _limited(self, instance: ModelInstance, group: InstanceGroup, device: int) -> ModelInstance:
        """The instance behind the rate limiter, where its group declares resources."""
        if self._limiter is None or group.rate_limiter is None or instance.passive:
            return instance
        turn = resource_claim(group.rate_limiter, device)
        return LimitedInstance(instance, self._limiter, turn)


def host_of(backend: type[Backend], config: ModelConfig) -> str:
    """The host of the model's instances: `thread` or `process`."""
    return config.parameter("penstock.host") or backend.traits.host


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
                yield (
                    group,
                    InstanceContext(
                        name=group.instance_name(number, device),
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


_EXECUTION_TIMEOUT = "penstock.execution_timeout_seconds"
_HANG = "penstock.hang_seconds"
_PRIVATE_TMP = "penstock.private_tmp"
_RESTART_HUNG = "penstock.restart_hung"
ENGINE_CORES = "penstock.engine_cores"
"""Parameter of a model: the cores of its processes, which the server keeps off."""

_MEMORY = "penstock.memory_limit_bytes"

_OF_PROCESSES = (ENGINE_CORES, _EXECUTION_TIMEOUT, _HANG, _MEMORY, _PRIVATE_TMP, _RESTART_HUNG)

_HANG_SECONDS = 30.0
"""Seconds without a sign of a process, while requests wait, after which it is hung."""

NOTHING: Mapping[str, str] = {}

_AHEAD = 16
"""Batches that may be in flight at the only instance of a model without batching."""


def hosting(
    backend: type[Backend],
    config: ModelConfig,
    interpreter: str | None = None,
    max_responses: int | None = None,
    environment: Mapping[str, str] = NOTHING,
    *,
    tenants: bool = False,
) -> ProcessSpec | None:
    """The command, settings and limits of the model's processes; `None` for instances on threads.

    Raises `ConfigError` for parameters that its host does not take. Starts nothing.
    """
    host, own = host_of(backend, config), backend.traits.host
    hosts = dict.fromkeys(
        (own, "process", "thread") if backend.traits.threads else (own, "process")
    )
    if host not in hosts:
        allowed = " or ".join(f"'{one}'" for one in hosts)
        raise ConfigError(f"parameter 'penstock.host' must be {allowed}, got '{host}'")
    if host == "thread":
        refuse_process_parameters(config)
        if own == "process" and interpreter is not None:
            raise ConfigError(
                "parameter 'penstock.host' cannot be 'thread': the backend setting 'python' gives"
                f" its models another Python, {interpreter}"
            )
        return None
    memory_limit(config)
    usage = wants_usage(backend, config, tenants=tenants)
    return process_spec(backend, config, interpreter, max_responses, environment, usage=usage)


def memory_limit(config: ModelConfig) -> int | None:
    """The limit of each process in bytes, `None` without one; raises `ConfigError`."""
    text = config.parameter(_MEMORY)
    if text is None:
        return None
    if not text.isdecimal() or not int(text):
        raise ConfigError(f"parameter '{_MEMORY}' must be a number of bytes above 0, got '{text}'")
    return int(text)


def engine_cores(config: ModelConfig) -> tuple[int, int] | None:
    """The first and the last core of the model's processes; `None` without cores of their own."""
    text = config.parameter(ENGINE_CORES)
    return None if text is None else parse_cores(f"parameter '{ENGINE_CORES}'", text)


def process_spec(
    backend: type[Backend],
    config: ModelConfig,
    interpreter: str | None,
    max_responses: int | None = None,
    environment: Mapping[str, str] = NOTHING,
    *,
    usage: bool = False,
) -> ProcessSpec:
    """The command, settings and limits of the model's processes.

    `max_responses` limits the window of responses of every model; `environment` has variables of
    every process besides those of the server's that are passed on; `usage` asks for the tokens of
    each request.
    """
    names = dict.fromkeys(("penstock", backend.__module__.partition(".")[0]))
    return ProcessSpec(
        target=f"{backend.__module__}:{backend.__qualname__}",
        serial=backend.traits.serial,
        packages=tuple(_package_directory(name) for name in names),
        python=interpreter or sys.executable,
        main=backend.traits.process_main,
        execution_timeout=_seconds(config, _EXECUTION_TIMEOUT),
        ahead=_ahead(config),
        window=_window(backend, config).at_most(max_responses),
        private_tmp=_private_tmp(backend, config),
        hang_seconds=_hang_seconds(config),
        restart_hung=_restart_hung(config),
        controlled=issubclass(backend, Controllable | WithApplication),
        environment={**passed_on(os.environ), **environment},
        usage=usage,
    )


def refuse_process_parameters(config: ModelConfig) -> None:
    """Raise `ConfigError` for parameters that have no effect on instances on threads."""
    for name in _OF_PROCESSES:
        if config.parameter(name) is not None:
            raise ConfigError(
                f"parameter '{name}' is for instances in processes; those of this model are on"
                " threads, unless parameter 'penstock.host' is 'process'"
            )


def _ahead(config: ModelConfig) -> int:
    """Batches that may be in flight at a process: several only where that delays no request.

    With a batcher, waiting forms larger batches; with several instances, another may be free first;
    with a rate limiter, resources are released when a batch is done.
    """
    instances = sum(group.count * max(len(group.gpus), 1) for group in config.instance_group)
    groups = config.instance_group
    batches = config.dynamic_batching is not None or config.sequence_batching is not None
    limited = any(group.rate_limiter is not None for group in groups)
    return 1 if batches or limited or instances > 1 else _AHEAD


def _window(backend: type[Backend], config: ModelConfig) -> Window:
    """The flow-control window of responses: `RESPONSES` or `RESPONSES,BYTES`."""
    text = config.parameter("penstock.response_window")
    if text is None:
        return backend.traits.window
    try:
        return Window(*map(int, text.split(",")))
    except (ValueError, TypeError, ConfigError) as error:
        raise ConfigError(
            "parameter 'penstock.response_window' must be RESPONSES or RESPONSES,BYTES, numbers"
            f" above 0, got '{text}'"
        ) from error


def _hang_seconds(config: ModelConfig) -> float:
    """Seconds of silence after which a process is hung; 0 for no hang detection."""
    text = config.parameter(_HANG)
    if text is None:
        return _HANG_SECONDS
    seconds = _number(text)
    if not 0.0 <= seconds < inf:
        raise ConfigError(
            f"parameter '{_HANG}' must be a number of seconds, or 0 for never, got '{text}'"
        )
    return seconds


def _restart_hung(config: ModelConfig) -> bool:
    wanted = _flag(config, _RESTART_HUNG) or False
    if wanted and not _hang_seconds(config):
        raise ConfigError(f"parameter '{_RESTART_HUNG}' has no effect where '{_HANG}' is 0")
    return wanted


def _private_tmp(backend: type[Backend], config: ModelConfig) -> bool:
    """Whether each process has a temporary folder of its own: on request, or for its engine."""
    wanted = _flag(config, _PRIVATE_TMP)
    if backend.traits.private_tmp and wanted is False:
        raise ConfigError(
            f"parameter '{_PRIVATE_TMP}' cannot be 'false': the engine of backend"
            f" '{config.backend}' leaves files that must go with its process"
        )
    return backend.traits.private_tmp or bool(wanted)


def _flag(config: ModelConfig, name: str) -> bool | None:
    """The value of a parameter that is `true` or `false`; `None` if it is not set."""
    text = config.parameter(name)
    if text is not None and text not in ("true", "false"):
        raise ConfigError(f"parameter '{name}' must be 'true' or 'false', got '{text}'")
    return None if text is None else text == "true"


def _seconds(config: ModelConfig, name: str) -> float | None:
    """The value of a parameter in seconds, above zero; `None` if it is not set."""
    text = config.parameter(name)
    if text is None:
        return None
    seconds = _number(text)
    if not 0.0 < seconds < inf:
        raise ConfigError(f"parameter '{name}' must be a number of seconds above 0, got '{text}'")
    return seconds


def _number(text: str) -> float:
    """The number, or NaN for other text."""
    try:
        return float(text)
    except ValueError:
        return nan


def _package_directory(package: str) -> Path:
    """The folder of a package, which the process imports it from."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
