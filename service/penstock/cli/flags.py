"""The table of every option of `penstock serve`: its name, its value, and where that goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.cli import values
from penstock.settings import CompressionLevel, ModelControlMode, Restriction

Gather = Callable[[Any, Any], Any]
"""What the field becomes, from its value so far and the new one."""


def last(_: Any, value: Any) -> Any:
    return value


def each(before: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    return (*before, value)


def once_each(before: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    return before if value in before else (*before, value)


def by_key(before: Mapping[Any, Any], value: tuple[Any, Any]) -> dict[Any, Any]:
    return {**before, value[0]: value[1]}


def by_name(before: Mapping[str, Mapping[str, str]], value: values.Setting) -> dict[str, Any]:
    name, key, setting = value
    return {**before, name: {**before.get(name, {}), key: setting}}


def disjoint(kind: str) -> Gather:
    """Restrictions, each feature in one of them only."""

    def gather(before: tuple[Restriction, ...], value: Restriction) -> tuple[Restriction, ...]:
        taken = [feature for restriction in before for feature in restriction.features]
        values.refuse_repeated([*taken, *sorted(value.features)], kind)
        return (*before, value)

    return gather


@dataclass(frozen=True, slots=True)
class Flag:
    """One option. `field` is the path of its value in `Settings`, empty where `build` decides."""

    name: str
    argument: str
    parse: values.Parser
    field: str
    help: str
    gather: Gather = last
    warning: str = ""

    @property
    def takes_value(self) -> bool:
        return bool(self.argument)


@dataclass(frozen=True, slots=True)
class Group:
    title: str
    flags: tuple[Flag, ...] = field(default_factory=tuple)


def _text(name: str, field: str, help: str, parse: values.Parser = values.text) -> Flag:
    return Flag(name, "string", parse, field, help)


def _bool(name: str, field: str, help: str) -> Flag:
    return Flag(name, "boolean", values.boolean, field, help)


def _int(name: str, field: str, help: str, parse: values.Parser = values.integer) -> Flag:
    return Flag(name, "integer", parse, field, help)


def _decimal(name: str, field: str, help: str) -> Flag:
    return Flag(name, "float", values.decimal, field, help)


def _restriction(name: str, kind: str, field: str) -> Flag:
    return Flag(
        name,
        "string>:<string>=<string",
        values.restriction(name, kind),
        field,
        "Serve these groups of calls only to clients that send a header: "
        "<group>[,<group>]:<key>=<value>. Groups: health, metadata, inference, shared-memory, "
        "model-config, model-repository, statistics, trace, logging. Repeatable; a group may "
        "appear once.",
        disjoint(kind),
    )


def _deprecated(flag: Flag, instead: str) -> Flag:
    warning = (
        f"Warning: '--{flag.name}' has been deprecated and will be removed in future releases. "
        f"Please use '--trace-config {instead} instead."
    )
    return Flag(flag.name, flag.argument, flag.parse, "", flag.help, warning=warning)


_LOGGING = Group(
    "Logging",
    (
        _int(
            "log-verbose",
            "logging.verbose",
            "Level of detail; 0 is off.",
            values.verbosity,
        ),
        _bool("log-info", "logging.info", "Log what happens. Default true."),
        _bool("log-warning", "logging.warning", "Log warnings. Default true."),
        _bool("log-error", "logging.error", "Log errors. Default true."),
        _text(
            "log-format",
            "logging.format",
            'Start of a line: "default" (LMMDD hh:mm:ss.ssssss) or "ISO8601" '
            "(YYYY-MM-DDThh:mm:ssZ L).",
            values.one_of("log-format", "default", "ISO8601", fold=False),
        ),
        _text("log-file", "logging.file", "Write the log to this file as well."),
    ),
)

_SERVER = Group(
    "Server",
    (
        _text("id", "id", 'Name of this server in its metadata. Default "triton".'),
        _int(
            "exit-timeout-secs",
            "exit_timeout_seconds",
            "How long a stopping server waits for requests in flight. Default 30.",
        ),
    ),
)

_REPOSITORY = Group(
    "Model Repository",
    (
        Flag(
            "model-store",
            "string",
            values.text,
            "repository.paths",
            "The same as --model-repository.",
            once_each,
        ),
        Flag(
            "model-repository",
            "string",
            values.text,
            "repository.paths",
            "Directory of models; required. Repeatable: a model found in two of them is served "
            "from neither.",
            once_each,
        ),
        _bool(
            "exit-on-error",
            "repository.exit_on_error",
            "Do not start when a model fails to load. Default true.",
        ),
        Flag(
            "disable-auto-complete-config",
            "",
            values.text,
            "",
            "Take configurations as written; do not ask backends to complete them.",
        ),
        _bool(
            "strict-readiness",
            "repository.strict_readiness",
            "The server is ready only while all models are. Default true.",
        ),
        _text(
            "model-control-mode",
            "repository.control_mode",
            '"none": load everything at start. "poll": follow changes of the repository. '
            '"explicit": load what --load-model names, then what clients ask for. '
            'Default "none".',
            values.member_of(ModelControlMode, "model-control-mode"),
        ),
        _int(
            "repository-poll-secs",
            "repository.poll_seconds",
            "Seconds between looks at the repository in mode poll. Default 15.",
        ),
        Flag(
            "load-model",
            "string",
            values.text,
            "repository.startup_models",
            "Model to load at start in mode explicit. Repeatable; * alone means all.",
            once_each,
        ),
        _text(
            "model-config-name",
            "repository.config_name",
            "Read configs/<name>.pbtxt of a model rather than config.pbtxt where it exists.",
            values.model_config_name,
        ),
        _int(
            "model-load-thread-count",
            "repository.load_thread_count",
            "Models loaded at the same time. Default 4.",
        ),
        _int(
            "model-load-retry-count",
            "repository.load_retry_count",
            "Further attempts to load a model that failed. Default 0.",
        ),
        _bool(
            "model-namespacing",
            "repository.namespacing",
            "Allow models of the same name in different repositories. Default false.",
        ),
        _bool(
            "enable-peer-access",
            "devices.peer_access",
            "Let GPUs read each other's memory where they can. Default true.",
        ),
    ),
)

_HTTP = Group(
    "HTTP",
    (
        _bool("allow-http", "http.enabled", "Serve HTTP. Default true."),
        _text("http-address", "http.address", "Address to listen on. Default 0.0.0.0."),
        _int("http-port", "http.port", "Default 8000; 0 takes a free one.", values.port),
        _bool(
            "reuse-http-port",
            "http.reuse_port",
            "Share the port with other servers that set this too.",
        ),
        _text(
            "http-header-forward-pattern",
            "http.header_forward_pattern",
            "Headers that match this expression become request parameters.",
        ),
        _int("http-thread-count", "http.thread_count", "Threads for HTTP. Default 8."),
        _int(
            "http-max-input-size",
            "http.max_input_size",
            "Largest request body in bytes. Default 67108864.",
            values.positive("Error: --http-max-input-size must be greater than 0."),
        ),
        _restriction("http-restricted-api", "api", "http.restrictions"),
    ),
)

_GRPC = Group(
    "GRPC",
    (
        _bool("allow-grpc", "grpc.enabled", "Serve gRPC. Default true."),
        _text("grpc-address", "grpc.address", "Address to listen on. Default 0.0.0.0."),
        _int("grpc-port", "grpc.port", "Default 8001; 0 takes a free one.", values.port),
        _bool(
            "reuse-grpc-port",
            "grpc.reuse_port",
            "Share the port with other servers that set this too.",
        ),
        _text(
            "grpc-header-forward-pattern",
            "grpc.header_forward_pattern",
            "Metadata that match this expression become request parameters.",
        ),
        _int(
            "grpc-infer-thread-count",
            "grpc.infer_thread_count",
            "Threads for inference calls, 2 to 128. Default 2.",
            values.infer_thread_count,
        ),
        _int(
            "grpc-infer-allocation-pool-size",
            "grpc.infer_allocation_pool_size",
            "Request and response objects kept for reuse. Default 8.",
        ),
        _int(
            "grpc-max-response-pool-size",
            "grpc.max_response_pool_size",
            "Response objects kept for one request. Default 2147483647.",
            values.positive("Error: --grpc-max-response-pool-size must be greater than 0."),
        ),
        _bool("grpc-use-ssl", "grpc.tls.enabled", "Encrypt with TLS. Default false."),
        _bool(
            "grpc-use-ssl-mutual",
            "grpc.tls.mutual",
            "Encrypt with TLS and require a certificate of clients too. Default false.",
        ),
        _text("grpc-server-cert", "grpc.tls.certificate", "PEM file: certificate of the server."),
        _text("grpc-server-key", "grpc.tls.key", "PEM file: key of the server."),
        _text(
            "grpc-root-cert",
            "grpc.tls.root_certificate",
            "PEM file: root certificate for those of clients.",
        ),
        _text(
            "grpc-infer-response-compression-level",
            "grpc.response_compression",
            'Compression of responses: "none", "low", "medium" or "high". Default "none".',
            # The wording of the refusal has underscores.
            values.member_of(CompressionLevel, "grpc_infer_response_compression_level"),
        ),
        _int(
            "grpc-keepalive-time",
            "grpc.keepalive.time_ms",
            "Milliseconds of silence before the server pings. Default 7200000.",
        ),
        _int(
            "grpc-keepalive-timeout",
            "grpc.keepalive.timeout_ms",
            "Milliseconds to wait for the answer before it hangs up. Default 20000.",
        ),
        _bool(
            "grpc-keepalive-permit-without-calls",
            "grpc.keepalive.permit_without_calls",
            "Ping also while no call is in flight. Default false.",
        ),
        _int(
            "grpc-http2-max-pings-without-data",
            "grpc.keepalive.max_pings_without_data",
            "Pings sent while there is nothing else to send; 0 is no limit. Default 2.",
        ),
        _int(
            "grpc-http2-min-recv-ping-interval-without-data",
            "grpc.keepalive.min_recv_ping_interval_without_data_ms",
            "Milliseconds below which an idle client's pings count as bad. Default 300000.",
        ),
        _int(
            "grpc-http2-max-ping-strikes",
            "grpc.keepalive.max_ping_strikes",
            "Bad pings tolerated before the server hangs up; 0 is no limit. Default 2.",
        ),
        _int(
            "grpc-max-connection-age",
            "grpc.keepalive.max_connection_age_ms",
            "Milliseconds after which a connection is asked to end. Default never.",
        ),
        _int(
            "grpc-max-connection-age-grace",
            "grpc.keepalive.max_connection_age_grace_ms",
            "Milliseconds that its calls then still have. Default no limit.",
        ),
        _restriction("grpc-restricted-protocol", "protocol", "grpc.restrictions"),
        _text(
            "grpc-transport",
            "grpc.transport",
            'Implementation of gRPC: "grpcio". An option of Penstock only.',
            values.one_of("grpc-transport", "grpcio"),
        ),
    ),
)

_SHARED_MEMORY = Group(
    "Shared Memory",
    (
        _bool(
            "allow-client-shm",
            "client_shared_memory",
            "Let clients register shared memory. Default false.",
        ),
    ),
)

_SAGEMAKER = Group(
    "Sagemaker",
    (
        _bool("allow-sagemaker", "sagemaker.enabled", "Serve SageMaker. Default false."),
        _int("sagemaker-port", "sagemaker.port", "Default 8080.", values.port),
        Flag(
            "sagemaker-safe-port-range",
            "integer>-<integer",
            values.pair(values.integer, values.integer, "-"),
            "sagemaker.safe_ports",
            "Ports that the other endpoints may have.",
        ),
        _int("sagemaker-thread-count", "sagemaker.thread_count", "Default 8."),
    ),
)

_VERTEX = Group(
    "Vertex",
    (
        _bool(
            "allow-vertex-ai",
            "vertex.enabled",
            "Serve Vertex AI. Default true where AIP_MODE is PREDICTION, else false.",
        ),
        _int(
            "vertex-ai-port",
            "vertex.port",
            "Default AIP_HTTP_PORT, or 8080.",
            values.port,
        ),
        _int("vertex-ai-thread-count", "vertex.thread_count", "Default 8."),
        _text(
            "vertex-ai-default-model",
            "vertex.default_model",
            "Model of requests that name none.",
        ),
    ),
)

_METRICS = Group(
    "Metrics",
    (
        _bool("allow-metrics", "metrics.enabled", "Serve Prometheus metrics. Default true."),
        _bool("allow-gpu-metrics", "metrics.gpu", "Include GPU metrics. Default true."),
        _bool("allow-cpu-metrics", "metrics.cpu", "Include CPU metrics. Default true."),
        _text(
            "metrics-address",
            "metrics.address",
            "Address to listen on. Default that of HTTP.",
        ),
        _int("metrics-port", "metrics.port", "Default 8002; 0 takes a free one.", values.port),
        _decimal(
            "metrics-interval-ms",
            "metrics.interval_ms",
            "Milliseconds between readings of CPU and GPU metrics. Default 2000.",
        ),
        Flag(
            "metrics-config",
            "string>=<string",
            values.metrics_config,
            "metrics.config",
            "A setting of the metrics: counter_latencies, histogram_latencies, "
            "summary_latencies (booleans), summary_quantiles. Repeatable.",
            by_key,
        ),
    ),
)

_TRACING = Group(
    "Tracing",
    (
        Flag(
            "trace-config",
            "string>,<string>=<string",
            values.trace_config,
            "",
            "A setting of tracing: rate, level, count, mode; with a mode before it "
            "triton,file, triton,log-frequency, or opentelemetry,<setting>. Repeatable.",
        ),
    ),
)

_BACKEND = Group(
    "Backend",
    (
        _text(
            "backend-directory",
            "backends.directory",
            "Where backends are looked for. Default /opt/tritonserver/backends.",
        ),
        Flag(
            "backend-config",
            "string>,<string>=<string",
            values.backend_config,
            "backends.config",
            "A setting for one backend; without <backend>, for all of them. Repeatable.",
            by_name,
        ),
    ),
)

_AGENT = Group(
    "Repository Agent",
    (
        _text(
            "repoagent-directory",
            "repository.agent_directory",
            "Where repository agents are looked for. Default /opt/tritonserver/repoagents.",
        ),
    ),
)

_CACHE = Group(
    "Response Cache",
    (
        Flag(
            "cache-config",
            "string>,<string>=<string",
            values.cache_config,
            "cache.config",
            "A setting of a response cache, which turns it on: local,size=<bytes>. Repeatable.",
            by_name,
        ),
        _text(
            "cache-directory",
            "cache.directory",
            "Where caches are looked for. Default /opt/tritonserver/caches.",
        ),
    ),
)

_RATE_LIMITER = Group(
    "Rate Limiter",
    (
        _text(
            "rate-limit",
            "rate_limit.mode",
            '"execution_count": instances wait for the resources they declare and take turns '
            'by priority. "off": they do not. Default "off".',
            values.one_of("rate-limit", "execution_count", "off"),
        ),
        Flag(
            "rate-limit-resource",
            "string>:<integer>:<integer",
            values.rate_limit_resource,
            "rate_limit.resources",
            "How much there is of a resource: <name>:<count>[:<device>]. Repeatable. Default: "
            "as much as the neediest instance asks for.",
            each,
        ),
    ),
)

_DEVICES = Group(
    "Memory/Device Management",
    (
        _int(
            "pinned-memory-pool-byte-size",
            "devices.pinned_memory_pool_byte_size",
            "Pinned host memory. Default 268435456.",
            values.big_integer,
        ),
        Flag(
            "cuda-memory-pool-byte-size",
            "integer>:<integer",
            values.pair(values.integer, values.big_integer),
            "devices.cuda_memory_pool_byte_size",
            "<gpu>:<bytes> of device memory kept for copies. Repeatable. Default 67108864 each.",
            by_key,
        ),
        Flag(
            "cuda-virtual-address-size",
            "integer>:<integer",
            values.pair(values.integer, values.big_integer),
            "devices.cuda_virtual_address_size",
            "<gpu>:<bytes> that a growing state may reach. Repeatable. Default 1 GiB each.",
            by_key,
        ),
        _decimal(
            "min-supported-compute-capability",
            "devices.min_supported_compute_capability",
            "GPUs below are not used. Default 6.0.",
        ),
        _int(
            "buffer-manager-thread-count",
            "devices.buffer_manager_thread_count",
            "Threads that copy tensors. Default 0.",
        ),
        Flag(
            "host-policy",
            "string>,<string>=<string",
            values.host_policy,
            "devices.host_policies",
            "Placement by policy: <policy>,numa-node=<n> or <policy>,cpu-cores=<a>-<b>. "
            "Repeatable.",
            by_name,
        ),
        Flag(
            "model-load-gpu-limit",
            "device_id>:<fraction",
            values.load_limit,
            "devices.load_limits",
            "Load no model on a GPU whose used memory exceeds this fraction. Repeatable.",
            by_key,
        ),
    ),
)

_DEPRECATED = Group(
    "DEPRECATED",
    (
        Flag(
            "strict-model-config",
            "boolean",
            values.boolean,
            "",
            "Use --disable-auto-complete-config.",
            warning="Warning: '--strict-model-config' has been deprecated! "
            "Please use '--disable-auto-complete-config' instead.",
        ),
        Flag(
            "response-cache-byte-size",
            "integer",
            values.cache_size,
            "cache.config",
            "Use --cache-config local,size=<bytes>.",
            by_name,
            warning="Warning: '--response-cache-byte-size' has been deprecated! This will "
            "default to the 'local' cache implementation with the provided byte size for its "
            "config. Please use '--cache-config' instead. The equivalent --cache-config CLI "
            "args would be: '--cache-config=local,size={value}'",
        ),
        _deprecated(
            _text("trace-file", "", "Use --trace-config triton,file=<path>."),
            "triton,file=<filepath>",
        ),
        _deprecated(
            _text("trace-level", "", "Use --trace-config level=<level>.", values.trace_level),
            "level=<OFF|TIMESTAMPS|TENSORS>",
        ),
        _deprecated(_int("trace-rate", "", "Use --trace-config rate=<n>."), "rate=<rate value>"),
        _deprecated(
            _int("trace-count", "", "Use --trace-config count=<n>."), "count=<count value>"
        ),
        _deprecated(
            _int("trace-log-frequency", "", "Use --trace-config triton,log-frequency=<n>."),
            "triton,log-frequency=<log frequency value>",
        ),
    ),
)

GROUPS = (
    _SERVER,
    _LOGGING,
    _REPOSITORY,
    _HTTP,
    _GRPC,
    _SHARED_MEMORY,
    _SAGEMAKER,
    _VERTEX,
    _METRICS,
    _TRACING,
    _BACKEND,
    _AGENT,
    _CACHE,
    _RATE_LIMITER,
    _DEVICES,
    _DEPRECATED,
)

FLAGS: dict[str, Flag] = {flag.name: flag for group in GROUPS for flag in group.flags}
