"""The faces of `InferenceServer`: what its users need of it, as protocols.

A handler takes the narrowest that has what it uses, so that its signature tells what it may do.
What an operation does is told at `InferenceServer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any, Protocol

from penstock.access.gate import AccessGate
from penstock.core.change_notifier import ChangeNotifier
from penstock.core.config import ModelConfig
from penstock.core.request import InferenceRequest
from penstock.core.stream import ResponseStream
from penstock.models.releases.releases import Releases
from penstock.models.serving.answers import ModelMetadata, ModelStatistics
from penstock.models.serving.loaded_model import LoadedModel
from penstock.models.serving.served_model import ServedModel
from penstock.scheduling.tokens.tenants import Tenants
from penstock.server.answers import Engine, EngineControlled, ModelIndexEntry, ServerMetadata
from penstock.server.control_policy import ControlPolicy
from penstock.server.load_meter import LoadMeter
from penstock.server.log_control import LogValues
from penstock.shared_memory.registry import Regions
from penstock.tracing.settings import Texts
from penstock.tracing.tracer import Tracer


class Inference(Protocol):
    """Serves requests: models by name, and what their inputs, senders and traces need."""

    @property
    def regions(self) -> Regions: ...

    @property
    def tracer(self) -> Tracer: ...

    @property
    def tenants(self) -> Tenants | None: ...

    @property
    def access(self) -> AccessGate | None: ...

    @property
    def most_elements(self) -> int: ...

    @property
    def load_meter(self) -> LoadMeter: ...

    def find(self, name: str, version: str) -> ServedModel: ...

    def infer(self, request: InferenceRequest) -> ResponseStream: ...

    def resident(self, name: str) -> bool | None: ...

    def cancel(self, request_id: str, tenant: str | None = None) -> int: ...

    async def model_metadata(self, name: str, version: str) -> ModelMetadata: ...

    async def wait_stopping(self) -> None: ...


class Views(Protocol):
    """Tells what the server and its models are, and how they do."""

    async def live(self) -> bool: ...

    async def ready(self) -> bool: ...

    @property
    def exiting(self) -> bool: ...

    @property
    def changes(self) -> ChangeNotifier: ...

    def model_names(self) -> Sequence[str]: ...

    async def model_ready(self, name: str, version: str) -> bool: ...

    def resident(self, name: str) -> bool | None: ...

    async def metadata(self) -> ServerMetadata: ...

    async def model_metadata(self, name: str, version: str) -> ModelMetadata: ...

    async def model_config(self, name: str, version: str) -> ModelConfig: ...

    async def statistics(self, name: str, version: str) -> tuple[ModelStatistics, ...]: ...

    async def openai_descriptions(self) -> Mapping[str, Mapping[str, Any]]: ...


class Engines(Inference, Views, Protocol):
    """Serves language models to routers of engines."""

    async def engine(self, name: str, *, load: bool = True) -> Engine | None: ...

    async def engines(self) -> Sequence[str]: ...


class Repository(Protocol):
    """Loads and unloads models, and lists them."""

    @property
    def control_policy(self) -> ControlPolicy: ...

    @property
    def releases(self) -> Releases: ...

    async def index(self, ready_only: bool = False) -> tuple[ModelIndexEntry, ...]: ...

    async def load(
        self, name: str, parameters: Mapping[str, str | bytes], *, trusted: bool = False
    ) -> None: ...

    async def unload(
        self, name: str, unload_dependents: bool = False, versions: Set[int] = frozenset()
    ) -> None: ...

    def check_model_control(self) -> None: ...


class Control(Protocol):
    """Changes settings of the server, and commands engines."""

    @property
    def control_policy(self) -> ControlPolicy: ...

    async def control(
        self, name: str, version: str, action: str, arguments: Mapping[str, Any]
    ) -> EngineControlled: ...

    def check_engine_control(self, name: str, version: str) -> LoadedModel: ...

    async def trace_settings(self, model: str = "", changes: Texts | None = None) -> Texts: ...

    async def log_settings(self, changes: LogValues | None = None) -> LogValues: ...
