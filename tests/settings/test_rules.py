"""Contradictory settings are rejected, with the texts of `tritonserver`."""

from __future__ import annotations

import pytest

from harness.outcomes import raises_nothing
from penstock.settings import (
    CacheSettings,
    GrpcSettings,
    HttpSettings,
    MetricsSettings,
    ModelControlMode,
    RepositorySettings,
    SagemakerSettings,
    Settings,
    VertexSettings,
)
from penstock.settings.rules import SettingsError

MODELS = RepositorySettings(paths=("models",))


@pytest.mark.contract("CL-06")
def test_a_repository_is_required() -> None:
    with pytest.raises(SettingsError, match="--model-repository must be specified"):
        Settings()


@pytest.mark.contract("CL-12", "M-02")
def test_startup_models_need_explicit_control() -> None:
    repository = RepositorySettings(paths=("models",), startup_models=("m",))
    with pytest.raises(SettingsError, match="requires setting '--model-control-mode=explicit'"):
        Settings(repository=repository)


@pytest.mark.contract("CL-12", "M-02")
def test_the_wildcard_stands_alone() -> None:
    repository = RepositorySettings(
        paths=("models",),
        control_mode=ModelControlMode.EXPLICIT,
        startup_models=("*", "m"),
    )
    with pytest.raises(SettingsError, match="must be the ONLY startup model"):
        Settings(repository=repository)


@pytest.mark.contract("CL-51")
@pytest.mark.parametrize(
    ("http", "grpc", "metrics", "message"),
    [
        (1, 1, 2, "HTTP requests and GRPC requests at the same address and port 0.0.0.0:1"),
        (1, 2, 1, "HTTP requests and metrics requests at the same address and port 0.0.0.0:1"),
        (1, 2, 2, "GRPC requests and metrics requests at the same address and port 0.0.0.0:2"),
    ],
)
def test_endpoints_do_not_share_a_port(http: int, grpc: int, metrics: int, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Settings(
            repository=MODELS,
            http=HttpSettings(port=http),
            grpc=GrpcSettings(port=grpc),
            metrics=MetricsSettings(port=metrics),
        )


@pytest.mark.parametrize(
    "http",
    [
        HttpSettings(port=8001, address="127.0.0.1"),
        HttpSettings(port=8001, enabled=False),
        HttpSettings(port=0),
    ],
)
def test_other_addresses_closed_endpoints_and_free_ports_do_not_collide(http: HttpSettings) -> None:
    with raises_nothing():
        Settings(
            repository=MODELS, http=http, grpc=GrpcSettings(port=0 if http.port == 0 else 8001)
        )


def test_cloud_endpoints_collide_too() -> None:
    with pytest.raises(SettingsError, match=r"SageMaker requests and Vertex AI requests .*:8080"):
        Settings(
            repository=MODELS,
            sagemaker=SagemakerSettings(enabled=True),
            vertex=VertexSettings(enabled=True),
        )


def test_sagemaker_confines_the_other_ports() -> None:
    with pytest.raises(SettingsError, match=r"port 8000, allowed port range is \[8001, 8002\]"):
        Settings(
            repository=MODELS, sagemaker=SagemakerSettings(enabled=True, safe_ports=(8001, 8002))
        )


@pytest.mark.contract("RC-02")
def test_there_is_one_response_cache() -> None:
    with pytest.raises(SettingsError, match="only a single cache is currently supported"):
        Settings(repository=MODELS, cache=CacheSettings(config={"local": {}, "redis": {}}))


@pytest.mark.parametrize(
    ("prefix", "allowed", "text"), [("a_", False, "has no effect"), ("a/b", True, "a slash")]
)
def test_a_prefix_of_shared_memory_begins_a_name(prefix: str, allowed: bool, text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        Settings(
            repository=RepositorySettings(paths=("models",)),
            client_shared_memory=allowed,
            client_shm_prefix=prefix,
        )
