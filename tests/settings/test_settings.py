"""Settings have the defaults of `tritonserver`, and are frozen."""

from dataclasses import FrozenInstanceError
from operator import attrgetter

import pytest

from penstock.settings import (
    BackendSettings,
    CompressionLevel,
    ModelControlMode,
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


@pytest.mark.contract("GT-10", "H-31")
@pytest.mark.contract("CL-03", "CL-04", "CL-05", "CL-07", "CL-08", "CL-09", "CL-10", "CL-11")
@pytest.mark.contract("CL-13", "CL-14", "CL-15", "CL-16", "CL-17", "CL-18", "CL-19", "CL-20")
@pytest.mark.contract("CL-21", "CL-22", "CL-23", "CL-24", "CL-25", "CL-26", "CL-27", "CL-28")
@pytest.mark.contract("CL-29", "CL-30", "CL-31", "CL-32", "CL-33", "CL-34", "CL-35", "CL-39")
@pytest.mark.contract("CL-40", "CL-43", "CL-44", "CL-47", "SEC-08")
@pytest.mark.parametrize("field", DEFAULTS)
def test_defaults_are_those_of_tritonserver(field: str) -> None:
    assert attrgetter(field)(Settings(repository=MODELS)) == DEFAULTS[field]


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
