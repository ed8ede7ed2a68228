"""What settings may not say, alone or together; the texts are those of `tritonserver`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from penstock.settings import RepositorySettings, Settings


class SettingsError(ValueError):
    """Settings that contradict each other. The message is what the command line prints."""


def check(settings: Settings) -> None:
    """Raise a `SettingsError` for what cannot be served."""
    _check_startup_models(settings.repository)
    _check_ports(settings)
    _check_safe_ports(settings)
    _check_creation(settings)


class _Endpoint(NamedTuple):
    name: str
    address: str
    port: int


def _endpoints(settings: Settings) -> Iterator[_Endpoint]:
    """What listens, in the order in which a conflict names it."""
    http, grpc, metrics = settings.http, settings.grpc, settings.metrics
    if http.enabled:
        yield _Endpoint("HTTP", http.address, http.port)
    if grpc.enabled:
        yield _Endpoint("GRPC", grpc.address, grpc.port)
    if metrics.enabled:
        yield _Endpoint("metrics", metrics.address, metrics.port)
    if settings.sagemaker.enabled:
        yield _Endpoint("SageMaker", http.address, settings.sagemaker.port)
    if settings.vertex.enabled:
        yield _Endpoint("Vertex AI", http.address, settings.vertex.port)


def _check_startup_models(repository: RepositorySettings) -> None:
    if repository.startup_models and not repository.explicit:
        raise SettingsError(
            "Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well."
        )


def _check_ports(settings: Settings) -> None:
    """No two endpoints on one port; port 0 lets the system choose, so it never collides."""
    for one, other in combinations(_endpoints(settings), 2):
        if one.port and (one.address, one.port) == (other.address, other.port):
            raise SettingsError(
                f"The server cannot listen to {one.name} requests and {other.name} requests "
                f"at the same address and port {one.address}:{one.port}"
            )


def _check_safe_ports(settings: Settings) -> None:
    """SageMaker may confine every endpoint but its own to a range of ports."""
    if not settings.sagemaker.enabled or settings.sagemaker.safe_ports is None:
        return
    low, high = settings.sagemaker.safe_ports
    for name, _, port in _endpoints(settings):
        if name != "SageMaker" and not low <= port <= high:
            raise SettingsError(
                f"The server cannot listen to {name} requests at port {port}, "
                f"allowed port range is [{low}, {high}]"
            )


def _check_creation(settings: Settings) -> None:
    problem = ""
    startup_models = settings.repository.startup_models
    if not settings.repository.paths and not settings.repository.files:
        problem = "--model-repository must be specified"
    elif "*" in startup_models and len(startup_models) > 1:
        problem = "Wildcard model name '*' must be the ONLY startup model if specified at all."
    elif len(settings.cache.config) > 1:
        problem = (
            "found multiple cache configurations, but only a single cache is currently supported"
        )
    if problem:
        raise SettingsError(f"error: creating server: Invalid argument - {problem}")
