"""The profile of `--secure`: the defaults that it changes, and what contradicts it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import ip_address
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from penstock.settings.endpoints import Feature, Restriction, restriction_of
from penstock.settings.rules import SettingsError

if TYPE_CHECKING:
    from penstock.settings import Settings

LOOPBACK = "127.0.0.1"

HTTP_GROUPS = tuple(
    feature
    for feature in Feature
    if feature not in (Feature.HEALTH, Feature.METADATA, Feature.METRICS)
)
"""Groups whose calls must need a secret where strangers reach HTTP without TLS."""

GRPC_GROUPS = tuple(
    feature
    for feature in HTTP_GROUPS
    if feature not in (Feature.ENGINE_CONTROL, Feature.REQUEST_CONTROL)
)
"""The same of gRPC, which has no calls of the other groups."""

_RESTRICTIONS = {"http": "http-restricted-api", "grpc": "grpc-restricted-protocol"}
_GROUPS = {"http": HTTP_GROUPS, "grpc": GRPC_GROUPS}

_DEFAULTS: Mapping[str, object] = {
    "grpc.reflection": False,
    "backends.media_urls": False,
    "metrics.address": LOOPBACK,
}

_OFF = {
    "model_upload": "allow-model-upload",
    "trace_control": "allow-trace-control",
    "trace_tensors": "allow-trace-tensors",
    "log_control": "allow-log-control",
    "backends.media_urls": "allow-media-urls",
    "backends.unsafe_models": "allow-unsafe-models",
    "client_shared_memory": "allow-client-shm",
    "engine_control": "allow-engine-control",
    "trust_fairness_id": "trust-fairness-id",
    "grpc.reflection": "grpc-reflection",
    "grpc.channelz": "grpc-channelz",
    "http.docs": "http-docs",
}
"""Fields that must be false, and their flags."""


def secure_defaults(fields: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """The defaults of fields that `--secure` changes, by path; `fields` are those that are given.

    A protocol without TLS and secrets listens on this machine alone, unless a policy is asked.
    """
    yield from _DEFAULTS.items()
    if fields.get("access_policy"):
        return
    for protocol in _GROUPS:
        tls = fields.get(f"{protocol}.tls.enabled", False)
        if not tls and _unguarded(protocol, fields.get(f"{protocol}.restrictions", ())):
            yield f"{protocol}.address", LOOPBACK


def check_secure(settings: Settings) -> None:
    """Refuse settings that open what `--secure` closes."""
    for flag in _opened(settings):
        raise SettingsError(f"--{flag} contradicts --secure: leave one of them out")
    if settings.access_policy:
        return  # its keys are the secrets, for every call on every port
    http, grpc = settings.http, settings.grpc
    if _serves_http(settings) and not http.tls.enabled:
        _check_address("http", http.host, http.restrictions)
    if grpc.enabled and not grpc.tls.enabled:
        _check_address("grpc", grpc.address, grpc.restrictions)
    if settings.repository.explicit:
        _check_loads(settings)


def is_local(address: str) -> bool:
    """Whether only this machine reaches an address, such as `127.0.0.1` or `ipv6:[::1]`."""
    if address == "localhost" or address.startswith("unix:"):
        return True
    try:
        return ip_address(address.removeprefix("ipv6:").strip("[]")).is_loopback
    except ValueError:
        return False


def _opened(settings: Settings) -> Iterator[str]:
    """The options that contradict the profile, as one would write them."""
    for field, flag in _OFF.items():
        if attrgetter(field)(settings) is not False:
            yield f"{flag}=true"
    if "TENSORS" in settings.trace.levels:
        yield "trace-config=level=TENSORS"
    if settings.grpc.transport == "grpcio":
        yield "grpc-transport=grpcio"
    if "*" in settings.openai.allowed_origins:
        yield "openai-allow-origin=*"


def _serves_http(settings: Settings) -> bool:
    """Whether a port speaks HTTP; all of them have the address, TLS and restrictions of one."""
    own_port = settings.openai.enabled and settings.openai.port is not None
    clouds = settings.sagemaker.enabled or settings.vertex.enabled
    return settings.http.enabled or own_port or clouds


def _check_address(protocol: str, address: str, restrictions: Collection[Restriction]) -> None:
    """A protocol without TLS is reached by strangers only where their calls need secrets."""
    missing = _unguarded(protocol, restrictions)
    if missing and not is_local(address):
        raise SettingsError(
            f"--{protocol}-address={address} contradicts --secure: it needs"
            f" --{protocol}-use-ssl=true, or secrets for all groups of calls but health and"
            f" metadata, by --{_RESTRICTIONS[protocol]}={','.join(missing)}:<key>=<value>; without"
            " them leave it out, or listen at 127.0.0.1"
        )


def _unguarded(protocol: str, restrictions: Iterable[Restriction]) -> list[Feature]:
    """The groups of a protocol that need secrets, and have none."""
    known = [*restrictions]
    return [group for group in _GROUPS[protocol] if restriction_of(group, known) is None]


def _check_loads(settings: Settings) -> None:
    """Models are loaded by requests only of those who know a secret."""
    served = {"http": _serves_http(settings), "grpc": settings.grpc.enabled}
    group = Feature.MODEL_REPOSITORY
    for protocol, flag in _RESTRICTIONS.items():
        restrictions = attrgetter(f"{protocol}.restrictions")(settings)
        if served[protocol] and restriction_of(group, restrictions) is None:
            raise SettingsError(
                "--model-control-mode=explicit contradicts --secure, unless loads need a secret:"
                f" --{flag}={group}:<key>=<value>"
            )
