"""Contradictory settings are rejected, with the texts of `tritonserver`."""

from __future__ import annotations

from typing import Any

import pytest

from harness.outcomes import raises_nothing
from penstock.settings import (
    CacheSettings,
    GrpcSettings,
    HttpSettings,
    MetricsSettings,
    ModelControlMode,
    ModelFile,
    OpenAiSettings,
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


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"tenant_header": "x"}, "--tenant-header has no effect without --tenants"),
        ({"trust_fairness_id": True}, "--trust-fairness-id has no effect without --tenants"),
        (
            {"client_shm_prefix": "a"},
            "--client-shm-prefix has no effect without --allow-client-shm=true",
        ),
        (
            {"client_shm_prefix": "a/", "client_shared_memory": True},
            "--client-shm-prefix=a/ cannot hold a slash",
        ),
        (
            {"openai": OpenAiSettings(aliases={"a": "a"})},
            "--openai-alias=a=a has no effect",
        ),
        (
            {"openai": OpenAiSettings(aliases={"a": "b", "b": "c"})},
            "--openai-alias=a=b: 'b' is an alias too, of 'c'; name the model",
        ),
    ],
)
def test_what_would_have_no_effect_or_no_end_is_refused(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings(repository=MODELS, **changed)
    assert str(refused.value) == text


@pytest.mark.parametrize(
    "changed",
    [
        {"tenants": "file", "tenant_header": "x", "trust_fairness_id": True},
        {"client_shm_prefix": "a", "client_shared_memory": True},
        {"openai": OpenAiSettings(aliases={"a": "c", "b": "c"})},
        {"sagemaker": SagemakerSettings(enabled=True, safe_ports=(8000, 8002))},
        {"sagemaker": SagemakerSettings(safe_ports=(1, 2))},
        {"openai": OpenAiSettings(enabled=False, port=8000)},
    ],
)
def test_what_has_an_effect_is_taken(changed: dict[str, Any]) -> None:
    with raises_nothing():
        Settings(repository=MODELS, **changed)


@pytest.mark.parametrize("safe_ports", [(8001, 8002), (8000, 8001)])
def test_bounds_of_safe_ports_are_safe_themselves(safe_ports: tuple[int, int]) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings(
            repository=MODELS, sagemaker=SagemakerSettings(enabled=True, safe_ports=safe_ports)
        )
    name, port = ("HTTP", 8000) if safe_ports[0] > 8000 else ("metrics", 8002)
    assert str(refused.value) == (
        f"The server cannot listen to {name} requests at port {port}, allowed port range is"
        f" [{safe_ports[0]}, {safe_ports[1]}]"
    )


def test_the_port_of_openai_collides_as_all_do() -> None:
    with pytest.raises(SettingsError) as refused:
        Settings(repository=MODELS, openai=OpenAiSettings(port=8002))
    assert str(refused.value) == (
        "The server cannot listen to OpenAI requests and metrics requests at the same address and"
        " port 0.0.0.0:8002"
    )


def test_a_file_is_a_model_enough() -> None:
    with raises_nothing():
        Settings(repository=RepositorySettings(files=(ModelFile("m", {}, {}),)))
