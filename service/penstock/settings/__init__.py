"""The server's settings as frozen values, made from the command line and the environment.

Each part describes one area and has the defaults of `tritonserver`; `Settings` holds them all and
rejects contradictions. Times are in the unit that the name ends with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal

from penstock.settings.endpoints import (
    CompressionLevel,
    Feature,
    GrpcSettings,
    HttpSettings,
    KeepaliveSettings,
    MetricsSettings,
    OpenAiSettings,
    Restriction,
    SagemakerSettings,
    TlsSettings,
    VertexSettings,
    restriction_of,
)
from penstock.settings.rules import (
    Endpoint,
    check_aliases,
    check_creation,
    check_ports,
    check_safe_ports,
    check_shm_prefix,
    check_startup_models,
    check_tenants,
)
from penstock.settings.secure import check_secure
from penstock.settings.tracing import OpenTelemetrySettings, TraceSettings

__all__ = [
    "BackendSettings",
    "CacheSettings",
    "CompressionLevel",
    "DeviceSettings",
    "Feature",
    "GrpcSettings",
    "HttpSettings",
    "KeepaliveSettings",
    "LogSettings",
    "MetricsSettings",
    "ModelControlMode",
    "ModelFile",
    "OpenAiSettings",
    "OpenTelemetrySettings",
    "RateLimitResource",
    "RateLimitSettings",
    "RepositorySettings",
    "Restriction",
    "SagemakerSettings",
    "Settings",
    "Task",
    "TlsSettings",
    "TraceSettings",
    "VertexSettings",
    "restriction_of",
]


class ModelControlMode(StrEnum):
    """Model control mode: models are loaded at start, by polling, by requests, or by calls."""

    NONE = "none"
    POLL = "poll"
    EXPLICIT = "explicit"
    DEMAND = "demand"


class Task(StrEnum):
    """What a model is for, where its files serve several ends."""

    GENERATE = "generate"
    EMBED = "embed"
    RERANK = "rerank"
    CLASSIFY = "classify"


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model given by itself: what its folder in a repository holds, by paths in the folder.

    `links` are files and folders that lie elsewhere; `texts` are written, `config.pbtxt` first.
    """

    name: str
    links: Mapping[str, Path]
    texts: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositorySettings:
    """Locations of the models, and when they are loaded.

    `cache_dir` and `cache_size` (bytes, 0 for no limit) are of what was fetched from elsewhere.
    A call waits `demand_timeout` seconds at most for a load. With `signature_key`, the file of a
    public key, models must be signed.
    """

    paths: tuple[str, ...] = ()
    files: tuple[ModelFile, ...] = ()
    control_mode: ModelControlMode = ModelControlMode.NONE
    poll_seconds: int = 15
    startup_models: tuple[str, ...] = ()
    demand_timeout: float = 300.0
    exit_on_error: bool = True
    auto_complete_config: bool = True
    strict_readiness: bool = True
    config_name: str = ""
    load_thread_count: int = 4
    load_retry_count: int = 0
    namespacing: bool = False
    cache_dir: str = ""
    cache_size: int = 0
    signature_key: str = ""
    agent_directory: str = "/opt/tritonserver/repoagents"

    @property
    def explicit(self) -> bool:
        """Whether models are loaded and unloaded by requests of clients."""
        return self.control_mode in (ModelControlMode.EXPLICIT, ModelControlMode.DEMAND)

    @property
    def on_demand(self) -> bool:
        """Whether a call loads the model that it is for."""
        return self.control_mode is ModelControlMode.DEMAND

    @property
    def polls(self) -> bool:
        """Whether models follow the files of the repository."""
        return self.control_mode in (ModelControlMode.POLL, ModelControlMode.DEMAND)

    @property
    def loads_everything(self) -> bool:
        """Whether start-up loads all models rather than the named ones."""
        return not self.explicit or self.startup_models == ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The log; `escape` quotes messages, so that a client's text cannot forge a line.

    `access` and `audit` are the files of the access log and the audit log, "-" for standard output,
    or "off"; `audit_max_bytes` is the size from which on another file is begun, 0 for none.
    `file` replaces the console. `stream` is where everything goes that is written to either of the
    process's standard streams.
    """

    verbose: int = 0
    info: bool = True
    warning: bool = True
    error: bool = True
    format: Literal["default", "ISO8601", "json"] = "default"
    file: str = ""
    stream: Literal["split", "stdout", "stderr"] = "split"
    escape: bool = True
    access: str = "off"
    audit: str = "off"
    audit_max_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettings:
    """`config`: options by backend; those under the empty name are for every backend.

    `directory` holds the backends that are made of a `model.py`; empty for none. `media_urls` says
    whether media of requests are fetched by URL; `None` leaves it to the models that name hosts.
    `model_env` names environment variables that model processes get besides those of the
    allow-list. With `unsafe_models`, files are read that may run code while they are.
    """

    directory: str = ""
    media_urls: bool | None = None
    unsafe_models: bool = False
    config: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    model_env: tuple[str, ...] = ()

    def options_for(self, backend: str) -> dict[str, str]:
        """The options of one backend: the common ones, overridden by its own; then the server's."""
        common = self.config.get("", {})
        directory = self.directory or common.get("backend-directory", "")
        options = {**common, **self.config.get(backend, {})}
        if directory:
            options["backend-directory"] = directory
        if self.media_urls is not None:
            options["allow-media-urls"] = str(self.media_urls).lower()
        if self.unsafe_models:
            options["allow-unsafe-models"] = "true"
        return options


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """Options by kind of response cache; an empty `config` disables caching."""

    directory: str = "/opt/tritonserver/caches"
    config: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RateLimitResource:
    """`count` units of a resource on one device; -1 means on each device."""

    name: str
    count: int
    device: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimitSettings:
    """The rate limiter of instances, and the resources that they share."""

    mode: Literal["off", "execution_count"] = "off"
    resources: tuple[RateLimitResource, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSettings:
    """Memory pools and placement; mappings are by GPU ordinal or by name of a host policy.

    `memory_budget` is what models may take by device, `host`, `gpu` for each GPU or `gpu1`: bytes,
    or a share as a fraction; or of all devices together, as bytes of the device `""`. `sizes_file`
    keeps what was measured of models that are loaded by calls: empty for a file of the user's
    caches, `off` where nothing is measured.
    """

    pinned_memory_pool_byte_size: int = 256 * 1024 * 1024
    cuda_memory_pool_byte_size: Mapping[int, int] = field(default_factory=dict)
    cuda_virtual_address_size: Mapping[int, int] = field(default_factory=dict)
    min_supported_compute_capability: float = 6.0
    buffer_manager_thread_count: int = 0
    peer_access: bool = True
    host_policies: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    load_limits: Mapping[int, float] = field(default_factory=dict)
    cpu_only: bool = False
    memory_budget: Mapping[str, int | float] = field(default_factory=dict)
    sizes_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a server. Raises `SettingsError` if they contradict each other.

    `max_bytes_elements` limits a BYTES tensor from the network. All request bodies in flight share
    `request_memory_pool_byte_size` bytes; 0 is a quarter of the memory that the process may use.
    """

    id: str = "triton"
    secure: bool = False
    exit_timeout_seconds: int = 30
    max_pending_requests: int = 65536
    max_bytes_elements: int = 1 << 20
    request_memory_pool_byte_size: int = 0
    client_shared_memory: bool = False
    client_shm_prefix: str = ""
    spare_processes: int = 1
    engine_control: bool = False
    model_upload: bool = False
    trace_control: bool = False
    trace_tensors: bool = False
    log_control: bool = False
    access_policy: str = ""
    tenants: str = ""
    tenant_header: str = ""
    trust_fairness_id: bool = False
    repository: RepositorySettings = field(default_factory=RepositorySettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    openai: OpenAiSettings = field(default_factory=OpenAiSettings)
    grpc: GrpcSettings = field(default_factory=GrpcSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    logging: LogSettings = field(default_factory=LogSettings)
    trace: TraceSettings = field(default_factory=TraceSettings)
    backends: BackendSettings = field(default_factory=BackendSettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    rate_limit: RateLimitSettings = field(default_factory=RateLimitSettings)
    devices: DeviceSettings = field(default_factory=DeviceSettings)
    sagemaker: SagemakerSettings = field(default_factory=SagemakerSettings)
    vertex: VertexSettings = field(default_factory=VertexSettings)

    def __post_init__(self) -> None:
        repository = self.repository
        check_tenants(self.tenants, self.tenant_header, trust=self.trust_fairness_id)
        check_aliases(self.openai.aliases)
        check_shm_prefix(self.client_shm_prefix, allowed=self.client_shared_memory)
        check_startup_models(repository.startup_models, explicit=repository.explicit)
        check_ports(self._endpoints())
        if self.sagemaker.enabled and self.sagemaker.safe_ports is not None:
            check_safe_ports(self._endpoints(), self.sagemaker.safe_ports)
        check_creation(
            repository.paths + repository.files, repository.startup_models, self.cache.config
        )
        if self.secure:
            check_secure(self)

    def _endpoints(self) -> Iterator[Endpoint]:
        """Every enabled endpoint."""
        http, grpc, metrics = self.http, self.grpc, self.metrics
        if http.enabled:
            yield Endpoint("HTTP", http.address, http.port)
        if self.openai.enabled and self.openai.port is not None:
            yield Endpoint("OpenAI", http.host, self.openai.port)
        if grpc.enabled:
            yield Endpoint("GRPC", grpc.address, grpc.port)
        if metrics.enabled:
            yield Endpoint("metrics", metrics.address, metrics.port)
        if self.sagemaker.enabled:
            yield Endpoint("SageMaker", http.host, self.sagemaker.port)
        if self.vertex.enabled:
            yield Endpoint("Vertex AI", http.host, self.vertex.port)
