"""Settings have the defaults of `tritonserver`, and are frozen."""

from collections.abc import Iterator
from dataclasses import FrozenInstanceError, fields, is_dataclass
from operator import attrgetter
from typing import Any

import pytest

from penstock.metrics.measurement import Quantile
from penstock.settings import (
    BackendSettings,
    CompressionLevel,
    HttpSettings,
    ModelControlMode,
    OpenTelemetrySettings,
    RepositorySettings,
    Settings,
)

MODELS = RepositorySettings(paths=("models",))


DEFAULTS: dict[str, object] = {
    "id": "triton",
    "exit_timeout_seconds": 30,
    "logging.verbose": 0,
    "logging.info": True,
    "logging.warning": True,
    "logging.error": True,
    "logging.format": "default",
    "logging.file": "",
    "repository.exit_on_error": True,
    "repository.auto_complete_config": True,
    "repository.strict_readiness": True,
    "repository.control_mode": ModelControlMode.NONE,
    "repository.poll_seconds": 15,
    "repository.config_name": "",
    "repository.load_thread_count": 4,
    "repository.load_retry_count": 0,
    "repository.namespacing": False,
    "devices.peer_access": True,
    "http.enabled": True,
    "http.address": "0.0.0.0",
    "http.port": 8000,
    "http.reuse_port": False,
    "http.header_forward_pattern": "",
    "http.thread_count": 8,
    "http.max_input_size": 67108864,
    "http.max_json_values": 1048576,
    "http.max_header_size": 65536,
    "http.max_header_count": 100,
    "http.header_timeout_secs": 20,
    "http.body_timeout_secs": 20,
    "http.idle_timeout_secs": 90,
    "http.send_timeout_secs": 60,
    "http.restrictions": (),
    "grpc.enabled": True,
    "grpc.address": "0.0.0.0",
    "grpc.port": 8001,
    "grpc.reuse_port": False,
    "grpc.channelz": False,
    "grpc.header_forward_pattern": "",
    "grpc.infer_thread_count": 2,
    "grpc.infer_allocation_pool_size": 8,
    "grpc.max_response_pool_size": 2147483647,
    "grpc.tls.enabled": False,
    "grpc.tls.mutual": False,
    "grpc.response_compression": CompressionLevel.NONE,
    "grpc.keepalive.time_ms": 7200000,
    "grpc.keepalive.timeout_ms": 20000,
    "grpc.keepalive.permit_without_calls": False,
    "grpc.keepalive.max_pings_without_data": 2,
    "grpc.keepalive.min_recv_ping_interval_without_data_ms": 300000,
    "grpc.keepalive.max_ping_strikes": 2,
    "grpc.keepalive.max_connection_age_ms": None,
    "grpc.restrictions": (),
    "sagemaker.enabled": False,
    "sagemaker.port": 8080,
    "sagemaker.thread_count": 8,
    "vertex.enabled": False,
    "vertex.port": 8080,
    "vertex.thread_count": 8,
    "vertex.default_model": "",
    "metrics.enabled": True,
    "metrics.gpu": True,
    "metrics.cpu": True,
    "metrics.port": 8002,
    "metrics.interval_ms": 2000,
    "rate_limit.mode": "off",
    "devices.pinned_memory_pool_byte_size": 268435456,
    "devices.min_supported_compute_capability": 6.0,
    "devices.buffer_manager_thread_count": 0,
    "client_shared_memory": False,
    "repository.signature_key": "",
    "backends.unsafe_models": False,
}


@pytest.mark.contract("GT-10", "H-31", "I-22")
@pytest.mark.contract("CL-03", "CL-04", "CL-05", "CL-07", "CL-08", "CL-09", "CL-10", "CL-11")
@pytest.mark.contract("CL-13", "CL-14", "CL-15", "CL-16", "CL-17", "CL-18", "CL-19", "CL-20")
@pytest.mark.contract("CL-21", "CL-22", "CL-23", "CL-24", "CL-25", "CL-26", "CL-27", "CL-28")
@pytest.mark.contract("CL-29", "CL-30", "CL-31", "CL-32", "CL-33", "CL-34", "CL-35", "CL-39")
@pytest.mark.contract("CL-40", "CL-43", "CL-44", "CL-47", "SEC-08")
@pytest.mark.parametrize("field", DEFAULTS)
def test_defaults_are_those_of_tritonserver(field: str) -> None:
    assert attrgetter(field)(Settings(repository=MODELS)) == DEFAULTS[field]


OURS: dict[str, object] = {
    "secure": False,
    "max_pending_requests": 65536,
    "max_bytes_elements": 1048576,
    "request_memory_pool_byte_size": 0,
    "client_shm_prefix": "",
    "engine_control": False,
    "model_upload": False,
    "trace_control": False,
    "trace_tensors": False,
    "log_control": False,
    "access_policy": "",
    "tenants": "",
    "tenant_header": "",
    "trust_fairness_id": False,
    "repository.files": (),
    "repository.startup_models": (),
    "repository.demand_timeout": 300.0,
    "repository.cache_dir": "",
    "repository.cache_size": 0,
    "repository.agent_directory": "/opt/tritonserver/repoagents",
    "http.max_body_size": 2147483647,
    "http.event_keep_alive_secs": 15,
    "http.tls.enabled": False,
    "http.tls.mutual": False,
    "http.tls.certificate": "",
    "http.tls.key": "",
    "http.tls.root_certificate": "",
    "http.docs": False,
    "openai.enabled": True,
    "openai.port": None,
    "openai.lora_separator": ":",
    "openai.unknown_fields": "refuse",
    "openai.default_max_tokens": 0,
    "openai.tokenizer": "",
    "openai.aliases": {},
    "openai.allowed_origins": (),
    "openai.restrictions": (),
    "grpc.transport": "native",
    "grpc.engine_rpc": "",
    "grpc.reflection": True,
    "grpc.max_message_size": 2147483647,
    "grpc.max_control_message_size": 1048576,
    "grpc.tls.certificate": "",
    "grpc.tls.key": "",
    "grpc.tls.root_certificate": "",
    "grpc.keepalive.max_connection_age_grace_ms": None,
    "metrics.address": "0.0.0.0",
    "metrics.latencies.counter_latencies": True,
    "metrics.latencies.histogram_latencies": False,
    "metrics.latencies.summary_latencies": False,
    "metrics.latencies.summary_quantiles": (
        *(Quantile(0.5, 0.05), Quantile(0.9, 0.01), Quantile(0.95, 0.001)),
        *(Quantile(0.99, 0.001), Quantile(0.999, 0.001)),
    ),
    "metrics.latencies.vllm_names": False,
    "logging.stream": "split",
    "logging.escape": True,
    "logging.access": "off",
    "trace.mode": "triton",
    "trace.levels": frozenset(),
    "trace.rate": 1000,
    "trace.count": -1,
    "trace.file": "",
    "trace.log_frequency": 0,
    "trace.opentelemetry.url": "",
    "trace.opentelemetry.protocol": "http/protobuf",
    "trace.opentelemetry.resource": (),
    "trace.opentelemetry.bsp_max_queue_size": 2048,
    "trace.opentelemetry.bsp_schedule_delay": 5000,
    "trace.opentelemetry.bsp_max_export_batch_size": 512,
    "trace.opentelemetry.sampler": "",
    "trace.opentelemetry.ratio": 1.0,
    "trace.opentelemetry.slow_threshold_ms": 0.0,
    "trace.opentelemetry.always_on_error": False,
    "backends.directory": "",
    "backends.media_urls": None,
    "backends.config": {},
    "backends.model_env": (),
    "cache.directory": "/opt/tritonserver/caches",
    "cache.config": {},
    "rate_limit.resources": (),
    "devices.cuda_memory_pool_byte_size": {},
    "devices.cuda_virtual_address_size": {},
    "devices.host_policies": {},
    "devices.load_limits": {},
    "devices.cpu_only": False,
    "devices.memory_budget": {},
    "sagemaker.model_root": "/opt/ml/models",
    "sagemaker.safe_ports": None,
}
"""The defaults of settings that are no options of `tritonserver`, or nowhere in its contract."""


def leaves(settings: Any, path: str = "") -> Iterator[tuple[str, object]]:
    """Every field of the settings, below its parts, with its value."""
    for each in fields(settings):
        value = getattr(settings, each.name)
        if is_dataclass(value):
            yield from leaves(value, f"{path}{each.name}.")
        else:
            yield f"{path}{each.name}", value


def test_defaults_of_our_own_settings_stay() -> None:
    """A default that changes changes every server that does not name it."""
    found = dict(leaves(Settings(repository=MODELS)))
    assert {name: found[name] for name in OURS} == OURS


def test_settings_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        MODELS.namespacing = True  # type: ignore[misc]


@pytest.mark.parametrize(
    ("mode", "startup", "everything"),
    [
        (ModelControlMode.NONE, (), True),
        (ModelControlMode.POLL, (), True),
        (ModelControlMode.EXPLICIT, (), False),
        (ModelControlMode.EXPLICIT, ("m",), False),
        (ModelControlMode.EXPLICIT, ("*",), True),
    ],
)
def test_models_loaded_at_start(
    mode: ModelControlMode, startup: tuple[str, ...], everything: bool
) -> None:
    repository = RepositorySettings(control_mode=mode, startup_models=startup)
    assert repository.loads_everything is everything


def test_a_backends_own_settings_win_over_those_for_all() -> None:
    backends = BackendSettings(config={"": {"a": "1", "b": "1"}, "python": {"b": "2"}})
    assert backends.options_for("python") == {"a": "1", "b": "2"}
    assert backends.options_for("other") == {"a": "1", "b": "1"}


@pytest.mark.parametrize(("allowed", "text"), [(True, "true"), (False, "false")])
def test_a_flag_of_the_server_wins_over_settings_of_backends(allowed: bool, text: str) -> None:
    backends = BackendSettings(config={"vllm": {"allow-media-urls": "maybe"}}, media_urls=allowed)
    assert backends.options_for("vllm") == {"allow-media-urls": text}


@pytest.mark.parametrize(
    ("allowed", "given"), [(True, {"allow-unsafe-models": "true"}), (False, {})]
)
def test_backends_are_told_whether_models_may_be_unsafe(
    allowed: bool, given: dict[str, str]
) -> None:
    assert BackendSettings(unsafe_models=allowed).options_for("pytorch") == given


@pytest.mark.parametrize(
    ("mode", "explicit", "on_demand", "polls"),
    [
        (ModelControlMode.NONE, False, False, False),
        (ModelControlMode.POLL, False, False, True),
        (ModelControlMode.EXPLICIT, True, False, False),
        (ModelControlMode.DEMAND, True, True, True),
    ],
)
def test_a_control_mode_says_who_loads_models(
    mode: ModelControlMode, explicit: bool, on_demand: bool, polls: bool
) -> None:
    repository = RepositorySettings(control_mode=mode)
    assert (repository.explicit, repository.on_demand, repository.polls) == (
        *(explicit, on_demand),
        polls,
    )


def test_the_directory_of_backends_may_come_with_the_options_of_all() -> None:
    common = {"": {"backend-directory": "/common"}}
    assert BackendSettings(config=common).options_for("x") == {"backend-directory": "/common"}
    own = BackendSettings(config=common, directory="/own")
    assert own.options_for("x") == {"backend-directory": "/own"}


def test_ports_of_http_beside_a_socket_file_are_of_this_machine() -> None:
    assert HttpSettings(address="unix:/run/s").host == "127.0.0.1"
    assert HttpSettings(address="10.0.0.1").host == "10.0.0.1"


@pytest.mark.parametrize(
    ("error", "slow", "rule"), [(False, 0.0, False), (True, 0.0, True), (False, 0.5, True)]
)
def test_a_rule_at_the_end_is_one_about_errors_or_slowness(
    error: bool, slow: float, rule: bool
) -> None:
    made = OpenTelemetrySettings(always_on_error=error, slow_threshold_ms=slow)
    assert made.tail_rule is rule
