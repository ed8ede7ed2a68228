"""`InstanceFactory`: the instances of a model, on threads or in processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.core.backend import Backend, InstanceContext
from penstock.core.config import InstanceGroup, ModelConfig
from penstock.core.errors import ConfigError
from penstock.core.placement import Placement
from penstock.hosting.parent.process import ProcessInstance
from penstock.hosting.parent.services import ModelServices
from penstock.models.loading.contexts import instance_contexts
from penstock.models.loading.process_spec import process_spec
from penstock.models.serving.limited_instance import LimitedInstance, turn_of
from penstock.models.serving.loaded_model import ModelInstance
from penstock.models.serving.thread_instance import ThreadInstance
from penstock.scheduling.rate_limiter import RateLimiter
from penstock.system.reaper import Reaper

BackendSettingsOf = Callable[[str], Mapping[str, str]]


class InstanceFactory:
    """Makes instances where their models want them to live, behind the rate limiter, if any.

    `services` are what models in processes may ask of the server; set by whoever serves them.
    """

    def __init__(
        self,
        settings_of: BackendSettingsOf,
        reaper: Reaper,
        limiter: RateLimiter | None,
        placements: Mapping[str, Placement],
    ) -> None:
        self._settings_of = settings_of
        self._reaper = reaper
        self._limiter = limiter
        self._placements = placements
        self.services: ModelServices | None = None

    async def interpreter(
        self, backend: type[Backend], config: ModelConfig, path: Path
    ) -> str | None:
        """The Python that processes of the model run in; `None` for the server's own."""
        return await backend.interpreter(config, path, self._settings_of(config.backend))

    def instances(
        self,
        backend: type[Backend],
        config: ModelConfig,
        version: int,
        path: Path,
        interpreter: str | None,
    ) -> list[ModelInstance]:
        """Every instance that the configuration asks for, not started."""
        make = self._maker(backend, config, interpreter)
        settings = self._settings_of(config.backend)
        contexts = instance_contexts(config, version, path, settings, self._placements)
        return [self._limited(make(c), group, c.device_id) for group, c in contexts]

    def _maker(
        self, backend: type[Backend], config: ModelConfig, interpreter: str | None
    ) -> Callable[[InstanceContext], ModelInstance]:
        host = host_of(backend, config)
        if host == "thread" and backend.host == "thread":
            return lambda context: ThreadInstance(backend, context)
        if host == "process":
            spec = process_spec(backend, config, interpreter)
            return lambda context: ProcessInstance(spec, context, self._reaper, self.services)
        raise ConfigError(
            f"parameter 'penstock.host' must be '{backend.host}' or 'process', got '{host}'"
        )

    def _limited(self, instance: ModelInstance, group: InstanceGroup, device: int) -> ModelInstance:
        """The instance behind the rate limiter, where its group names what it must hold."""
        if self._limiter is None or group.rate_limiter is None or instance.passive:
            return instance
        turn = turn_of(group.rate_limiter, device)
        return LimitedInstance(instance, self._limiter, turn)


def host_of(backend: type[Backend], config: ModelConfig) -> str:
    """Where the model wants its instances to live."""
    return config.parameter("penstock.host") or backend.host
