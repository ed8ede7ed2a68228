"""`Options`: the settings of an in-process server, by Triton's names.

They become the flags that `tritonserver` has for them, so that both are checked by the same rules.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from penstock.cli.arguments import UsageError, parse_arguments
from penstock.cli.getopt import OptionError
from penstock.cli.unsupported import refuse_unsupported
from penstock.in_process.enums import (
    InstanceGroupKind,
    LogFormat,
    ModelControlMode,
    RateLimitMode,
)
from penstock.in_process.errors import InvalidArgumentError
from penstock.settings import Settings
from penstock.settings.rules import SettingsError

_BACKENDS = "/opt/tritonserver/backends"
_AGENTS = "/opt/tritonserver/repoagents"
_CACHES = "/opt/tritonserver/caches"


@dataclass(slots=True)
class RateLimiterResource:
    """`count` units of a resource on one device."""

    name: str
    count: int
    device: int


@dataclass(slots=True)
class ModelLoadDeviceLimit:
    """The share of a GPU's memory up to which models are loaded."""

    kind: InstanceGroupKind
    device: int
    fraction: float


@dataclass(slots=True)
class Options:
    """The settings of a server; all are checked when it starts. Mappings are by name.

    `access_policy` and `audit_log` are Penstock's own: the files of these flags.
    """

    model_repository: str | list[str] = field(default_factory=list)
    server_id: str = "triton"
    model_control_mode: ModelControlMode = ModelControlMode.NONE
    startup_models: list[str] = field(default_factory=list)
    strict_model_config: bool = False
    rate_limiter_mode: RateLimitMode = RateLimitMode.OFF
    rate_limiter_resources: list[RateLimiterResource] = field(default_factory=list)
    pinned_memory_pool_size: int = 1 << 28
    cuda_memory_pool_sizes: dict[int, int] = field(default_factory=dict)
    cache_config: dict[str, dict[str, Any]] = field(default_factory=dict)
    cache_directory: str = _CACHES
    min_supported_compute_capability: float = 6.0
    exit_on_error: bool = True
    strict_readiness: bool = True
    exit_timeout: int = 30
    buffer_manager_thread_count: int = 0
    model_load_thread_count: int = 4
    model_load_retry_count: int = 0
    model_namespacing: bool = False
    enable_peer_access: bool = True
    log_file: str | None = None
    log_info: bool = False
    log_warn: bool = False
    log_error: bool = False
    log_format: LogFormat = LogFormat.DEFAULT
    log_verbose: int = 0
    metrics: bool = True
    gpu_metrics: bool = True
    cpu_metrics: bool = True
    metrics_interval: int = 2000
    backend_directory: str = _BACKENDS
    repo_agent_directory: str = _AGENTS
    model_load_device_limits: list[ModelLoadDeviceLimit] = field(default_factory=list)
    backend_configuration: dict[str, dict[str, str]] = field(default_factory=dict)
    host_policies: dict[str, dict[str, str]] = field(default_factory=dict)
    metrics_configuration: dict[str, dict[str, str]] = field(default_factory=dict)
    access_policy: str = ""
    audit_log: str = "off"


def settings_of(options: Options) -> Settings:
    """The server's settings; raises `TypeError` and `InvalidArgumentError`."""
    if options.model_repository is None:
        raise InvalidArgumentError("Model repository must be specified.")
    _check_types(options)
    try:
        settings = parse_arguments(list(_flags(options)), {}, lambda _: None)
        refuse_unsupported(settings)
    except (OptionError, UsageError, SettingsError) as error:
        raise InvalidArgumentError(str(error)) from error
    return settings


_FLAGS = {
    "server_id": "id",
    "strict_model_config": "strict-model-config",
    "pinned_memory_pool_size": "pinned-memory-pool-byte-size",
    "min_supported_compute_capability": "min-supported-compute-capability",
    "exit_on_error": "exit-on-error",
    "strict_readiness": "strict-readiness",
    "exit_timeout": "exit-timeout-secs",
    "buffer_manager_thread_count": "buffer-manager-thread-count",
    "model_load_thread_count": "model-load-thread-count",
    "model_load_retry_count": "model-load-retry-count",
    "model_namespacing": "model-namespacing",
    "enable_peer_access": "enable-peer-access",
    "cache_directory": "cache-directory",
    "log_file": "log-file",
    "log_verbose": "log-verbose",
    "metrics": "allow-metrics",
    "gpu_metrics": "allow-gpu-metrics",
    "cpu_metrics": "allow-cpu-metrics",
    "metrics_interval": "metrics-interval-ms",
    "access_policy": "access-policy",
    "audit_log": "audit-log",
    "backend_directory": "backend-directory",
    "repo_agent_directory": "repoagent-directory",
}
"""Fields with one value, and their flags; what has its default is left out."""

_TABLES = {
    "cache_config": "cache-config",
    "backend_configuration": "backend-config",
    "host_policies": "host-policy",
    "metrics_configuration": "metrics-config",
}
"""Fields with settings by name, and their flags."""

_MODES = {RateLimitMode.OFF: "off", RateLimitMode.EXEC_COUNT: "execution_count"}
_FORMATS = {LogFormat.DEFAULT: "default", LogFormat.ISO8601: "ISO8601"}


def _flags(options: Options) -> Iterator[str]:
    yield from ("--allow-http=false", "--allow-grpc=false")
    if "TRITON_SERVER_CPU_ONLY" in os.environ:  # which has no option
        yield "--cpu-only"
    for path in _listed(options.model_repository):
        yield f"--model-repository={path}"
    yield f"--model-control-mode={ModelControlMode(options.model_control_mode).name.lower()}"
    for name in options.startup_models:
        yield f"--load-model={name}"
    for one in fields(options):
        value = getattr(options, one.name)
        if one.name in _FLAGS and value != one.default:
            yield f"--{_FLAGS[one.name]}={_text(value)}"
    yield from _lists(options)
    for name, flag in _TABLES.items():
        yield from _table(flag, getattr(options, name))
    yield from _log_levels(options)


def _lists(options: Options) -> Iterator[str]:
    yield f"--rate-limit={_MODES[RateLimitMode(options.rate_limiter_mode)]}"
    for resource in options.rate_limiter_resources:
        yield f"--rate-limit-resource={resource.name}:{resource.count}:{resource.device}"
    for device, size in options.cuda_memory_pool_sizes.items():
        yield f"--cuda-memory-pool-byte-size={device}:{size}"
    for limit in options.model_load_device_limits:
        if limit.kind is not InstanceGroupKind.GPU:
            raise InvalidArgumentError("load limits are for GPUs: InstanceGroupKind.GPU")
        yield f"--model-load-gpu-limit={limit.device}:{limit.fraction}"


def _table(flag: str, table: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for name, settings in table.items():
        for key, value in settings.items():
            prefix = f"{name}," if name else ""
            yield f"--{flag}={prefix}{key}={_text(value)}"


def _log_levels(options: Options) -> Iterator[str]:
    """A level implies those that are more important."""
    info = options.log_info or options.log_verbose > 0
    warn = options.log_warn or info
    levels = {"info": info, "warning": warn, "error": options.log_error or warn}
    for name, enabled in levels.items():
        yield f"--log-{name}={_text(enabled)}"
    yield f"--log-format={_FORMATS[LogFormat(options.log_format)]}"


def _listed(paths: str | list[str]) -> list[str]:
    return [paths] if isinstance(paths, str) else list(paths)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_types(options: Options) -> None:
    """Refuse values of other types than the defaults have, where these say it."""
    repository: Any = options.model_repository
    if not isinstance(repository, str | list) or not all(isinstance(p, str) for p in repository):
        raise TypeError(f"model_repository must be a string or a list of them, not {repository!r}")
    for one in fields(options):
        value = getattr(options, one.name)
        if isinstance(one.default, bool | str) and not isinstance(value, type(one.default)):
            kind = type(one.default).__name__
            raise TypeError(f"{one.name} must be a {kind}, not {value!r}")
        if isinstance(one.default, int | float) and not isinstance(value, int | float):
            raise TypeError(f"{one.name} must be a number, not {value!r}")
