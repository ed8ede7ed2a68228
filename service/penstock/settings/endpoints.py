"""The settings of the endpoints: gRPC, HTTP, metrics and the clouds' own."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from penstock.metrics.measurement import Measurement


class CompressionLevel(StrEnum):
    """The compression of gRPC responses."""

    NONE = "none"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Feature(StrEnum):
    """A group of calls that can be restricted to clients that send a secret header."""

    HEALTH = "health"
    METADATA = "metadata"
    INFERENCE = "inference"
    SHARED_MEMORY = "shared-memory"
    MODEL_CONFIG = "model-config"
    MODEL_REPOSITORY = "model-repository"
    STATISTICS = "statistics"
    TRACE = "trace"
    LOGGING = "logging"
    ENGINE_CONTROL = "engine-control"
    REQUEST_CONTROL = "request-control"
    METRICS = "metrics"

    @property
    def changes(self) -> bool:
        """Whether its calls change the server, but for those among them that read."""
        return self in _CHANGING


_CHANGING = frozenset(
    {
        Feature.MODEL_REPOSITORY,
        Feature.SHARED_MEMORY,
        Feature.TRACE,
        Feature.LOGGING,
        Feature.ENGINE_CONTROL,
        Feature.REQUEST_CONTROL,
    }
)


@dataclass(frozen=True, slots=True)
class Restriction:
    """`features` require the header `key`, behind the frontend's own prefix, to be `value`."""

    features: frozenset[Feature]
    key: str
    value: str

    def admits(self, value: str | None) -> bool:
        """Whether a call whose header has this value may pass, in a time that tells no secret."""
        if value is None:
            return False
        return hmac.compare_digest(_comparable(value), _comparable(self.value))


def restriction_of(feature: Feature, restrictions: Iterable[Restriction]) -> Restriction | None:
    """The restriction of a group of calls, if it has one."""
    return next((one for one in restrictions if feature in one.features), None)


def _comparable(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """Paths of PEM files; `mutual` requires a certificate of clients too."""

    enabled: bool = False
    mutual: bool = False
    certificate: str = ""
    key: str = ""
    root_certificate: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The HTTP endpoint.

    `max_input_size` limits bodies in bytes, binary tensors apart (H-36), `max_body_size` bodies
    with these. `max_json_values` limits the strings, objects and lists of large JSON.
    `max_header_size` limits heads in bytes, `max_header_count` their fields; a head must come
    within `header_timeout_secs`, and a part of a body in each `body_timeout_secs`.
    `idle_timeout_secs` is how long connections may wait for a request, on the metrics port too,
    `send_timeout_secs` how long their clients may read nothing of what is sent,
    `event_keep_alive_secs` after which silence a stream of events gets a comment;
    `docs` adds a description of the routes.
    """

    enabled: bool = True
    address: str = "0.0.0.0"
    port: int = 8000
    reuse_port: bool = False
    header_forward_pattern: str = ""
    thread_count: int = 8
    max_input_size: int = 64 * 1024 * 1024
    max_json_values: int = 1 << 20
    max_body_size: int = 2**31 - 1
    max_header_size: int = 64 * 1024
    max_header_count: int = 100
    header_timeout_secs: int = 20
    body_timeout_secs: int = 20
    idle_timeout_secs: int = 90
    send_timeout_secs: int = 60
    event_keep_alive_secs: float = 15
    tls: TlsSettings = field(default_factory=TlsSettings)
    docs: bool = False
    restrictions: tuple[Restriction, ...] = ()

    @property
    def host(self) -> str:
        """The address of the ports beside this one: this machine alone where HTTP has a file."""
        return "127.0.0.1" if self.address.startswith("unix:") else self.address


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAiSettings:
    """OpenAI's API on the port of HTTP, and on one more `port` if that is set.

    `lora_separator` stands between the names of a model and of an adapter; empty for no adapters.
    `default_max_tokens` limits answers to requests that set no limit; 0 for the model's own.
    `tokenizer` is the file or folder of the tokenizer of text models that name none.
    `aliases` are further names of models, or of adapters, whose names they map to.
    `allowed_origins` are those of web pages whose scripts may ask; `*` for all.
    """

    enabled: bool = True
    port: int | None = None
    lora_separator: str = ":"
    unknown_fields: Literal["refuse", "ignore"] = "refuse"
    default_max_tokens: int = 0
    tokenizer: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)
    allowed_origins: tuple[str, ...] = ()
    restrictions: tuple[Restriction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepaliveSettings:
    """Keepalive pings and connection age of gRPC, as in gRPC's channel arguments."""

    time_ms: int = 7_200_000
    timeout_ms: int = 20_000
    permit_without_calls: bool = False
    max_pings_without_data: int = 2
    min_recv_ping_interval_without_data_ms: int = 300_000
    max_ping_strikes: int = 2
    max_connection_age_ms: int | None = None
    max_connection_age_grace_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcSettings:
    """The gRPC endpoint: its transport, TLS, keepalive and restrictions.

    `max_message_size` limits requests that carry tensors or files in bytes,
    `max_control_message_size` all others. `engine_rpc` is the service for routers of engines,
    perhaps with the model that it asks for those that name none: `vllm`, or `vllm:MODEL`.
    """

    enabled: bool = True
    address: str = "0.0.0.0"
    port: int = 8001
    reuse_port: bool = False
    transport: Literal["native", "grpcio"] = "native"
    channelz: bool = False
    engine_rpc: str = ""
    reflection: bool = True
    header_forward_pattern: str = ""
    infer_thread_count: int = 2
    infer_allocation_pool_size: int = 8
    max_response_pool_size: int = 2**31 - 1
    max_message_size: int = 2**31 - 1
    max_control_message_size: int = 1 << 20
    response_compression: CompressionLevel = CompressionLevel.NONE
    tls: TlsSettings = field(default_factory=TlsSettings)
    keepalive: KeepaliveSettings = field(default_factory=KeepaliveSettings)
    restrictions: tuple[Restriction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsSettings:
    """Prometheus metrics; `latencies` holds the settings of `--metrics-config`."""

    enabled: bool = True
    gpu: bool = True
    cpu: bool = True
    address: str = "0.0.0.0"
    port: int = 8002
    interval_ms: float = 2000
    latencies: Measurement = field(default_factory=Measurement)


@dataclass(frozen=True, slots=True, kw_only=True)
class SagemakerSettings:
    """The SageMaker endpoint; `safe_ports` is the range, inclusive, for all other endpoints.

    The service may load models from folders below `model_root` only.
    """

    enabled: bool = False
    port: int = 8080
    model_root: str = "/opt/ml/models"
    safe_ports: tuple[int, int] | None = None
    thread_count: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class VertexSettings:
    """The Vertex AI endpoint; `default_model` serves requests that name none."""

    enabled: bool = False
    port: int = 8080
    thread_count: int = 8
    default_model: str = ""
