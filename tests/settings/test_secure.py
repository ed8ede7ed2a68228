"""The profile of `--secure`: what it closes, what contradicts it, and what makes it content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from penstock.settings import (
    BackendSettings,
    Feature,
    GrpcSettings,
    HttpSettings,
    MetricsSettings,
    ModelControlMode,
    OpenAiSettings,
    RepositorySettings,
    Restriction,
    SagemakerSettings,
    Settings,
    TlsSettings,
    TraceSettings,
    VertexSettings,
)
from penstock.settings.exposures import exposures
from penstock.settings.rules import SettingsError
from penstock.settings.secure import (
    GRPC_GROUPS,
    HTTP_GROUPS,
    LOOPBACK,
    is_local,
    secure_defaults,
)

HTTP, GRPC = HttpSettings(address=LOOPBACK), GrpcSettings(address=LOOPBACK, reflection=False)
SECURE: dict[str, Any] = {
    "secure": True,
    "repository": RepositorySettings(paths=("models",)),
    "http": HTTP,
    "grpc": GRPC,
    "metrics": MetricsSettings(address=LOOPBACK),
    "backends": BackendSettings(media_urls=False),
}
TLS = TlsSettings(enabled=True)
EXPLICIT = RepositorySettings(paths=("models",), control_mode=ModelControlMode.EXPLICIT)


def secret(*groups: Feature) -> tuple[Restriction, ...]:
    return (Restriction(frozenset(groups), "key", "value"),)


def refusal(**changed: Any) -> str:
    try:
        Settings(**{**SECURE, **changed})
    except SettingsError as error:
        return str(error)
    return ""


def test_what_the_profile_says_does_not_contradict_it() -> None:
    assert refusal() == ""


@pytest.mark.parametrize(
    ("flag", "changed"),
    [
        ("allow-model-upload=true", {"model_upload": True}),
        ("allow-trace-control=true", {"trace_control": True}),
        ("allow-trace-tensors=true", {"trace_tensors": True}),
        ("allow-log-control=true", {"log_control": True}),
        ("allow-media-urls=true", {"backends": BackendSettings(media_urls=True)}),
        ("allow-media-urls=true", {"backends": BackendSettings()}),
        (
            "allow-unsafe-models=true",
            {"backends": BackendSettings(media_urls=False, unsafe_models=True)},
        ),
        ("allow-client-shm=true", {"client_shared_memory": True}),
        ("allow-engine-control=true", {"engine_control": True}),
        ("trust-fairness-id=true", {"tenants": "file", "trust_fairness_id": True}),
        ("grpc-reflection=true", {"grpc": replace(GRPC, reflection=True)}),
        ("grpc-channelz=true", {"grpc": replace(GRPC, channelz=True)}),
        ("grpc-transport=grpcio", {"grpc": replace(GRPC, transport="grpcio")}),
        ("http-docs=true", {"http": replace(HTTP, docs=True)}),
        ("trace-config=level=TENSORS", {"trace": TraceSettings(levels=frozenset({"TENSORS"}))}),
        ("openai-allow-origin=*", {"openai": OpenAiSettings(allowed_origins=("*",))}),
    ],
)
def test_what_opens_a_door_contradicts_the_profile(flag: str, changed: Mapping[str, Any]) -> None:
    assert refusal(**changed) == f"--{flag} contradicts --secure: leave one of them out"
    assert not _refused_without_it(changed)


def _refused_without_it(changed: Mapping[str, Any]) -> bool:
    Settings(**{**SECURE, **changed, "secure": False})
    return False


@pytest.mark.parametrize(
    ("protocol", "groups", "restricted"),
    [
        ("http", HTTP_GROUPS, "http-restricted-api"),
        ("grpc", GRPC_GROUPS, "grpc-restricted-protocol"),
    ],
)
def test_strangers_need_tls_or_a_secret_for_every_group(
    protocol: str, groups: tuple[Feature, ...], restricted: str
) -> None:
    local: Any = {"http": HTTP, "grpc": GRPC}[protocol]
    open_to_all = replace(local, address="0.0.0.0")
    assert refusal(**{protocol: open_to_all}) == (
        f"--{protocol}-address=0.0.0.0 contradicts --secure: it needs --{protocol}-use-ssl=true, or"
        " secrets for all groups of calls but health and metadata, by"
        f" --{restricted}={','.join(groups)}:<key>=<value>; without them leave it out, or listen at"
        " 127.0.0.1"
    )
    for closed in (
        replace(open_to_all, tls=TLS),
        replace(open_to_all, restrictions=secret(*groups)),
        replace(open_to_all, enabled=False),
    ):
        assert refusal(**{protocol: closed}) == ""
    assert refusal(**{protocol: open_to_all}, access_policy="policy.toml") == ""
    one_less = replace(open_to_all, restrictions=secret(*groups[1:]))
    assert f"--{restricted}={groups[0]}:<key>" in refusal(**{protocol: one_less})


def test_groups_that_need_secrets_are_all_but_what_tells_nothing() -> None:
    assert {*Feature} - {*HTTP_GROUPS} == {Feature.HEALTH, Feature.METADATA, Feature.METRICS}
    assert {*HTTP_GROUPS} - {*GRPC_GROUPS} == {Feature.ENGINE_CONTROL, Feature.REQUEST_CONTROL}


@pytest.mark.parametrize(
    "other",
    [
        {"openai": OpenAiSettings(port=9000)},
        {"sagemaker": SagemakerSettings(enabled=True)},
        {"vertex": VertexSettings(enabled=True)},
    ],
)
def test_every_port_that_speaks_http_is_looked_at(other: Mapping[str, Any]) -> None:
    closed = HttpSettings(enabled=False, address="0.0.0.0")
    assert refusal(http=closed) == ""
    assert "--http-address=0.0.0.0 contradicts" in refusal(http=closed, **other)


@pytest.mark.parametrize(
    ("protocol", "flag"),
    [("http", "http-restricted-api"), ("grpc", "grpc-restricted-protocol")],
)
def test_loads_by_requests_need_a_secret_on_every_protocol(protocol: str, flag: str) -> None:
    guarded = secret(Feature.MODEL_REPOSITORY)
    both: dict[str, Any] = {
        "http": replace(HTTP, restrictions=guarded),
        "grpc": replace(GRPC, restrictions=guarded),
    }
    assert refusal(repository=EXPLICIT, **both) == ""
    one_open = {**both, protocol: replace(both[protocol], restrictions=())}
    assert refusal(repository=EXPLICIT, **one_open) == (
        "--model-control-mode=explicit contradicts --secure, unless loads need a secret:"
        f" --{flag}=model-repository:<key>=<value>"
    )
    closed = {**both, protocol: replace(both[protocol], restrictions=(), enabled=False)}
    assert refusal(repository=EXPLICIT, **closed) == ""
    assert refusal(repository=EXPLICIT, **one_open, access_policy="policy.toml") == ""


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("ipv6:[::1]", True),
        ("unix:/run/s", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("[::]", False),
        ("example.com", False),
        ("", False),
    ],
)
def test_an_address_is_local_if_only_this_machine_reaches_it(address: str, local: bool) -> None:
    assert is_local(address) is local


def test_the_profile_changes_defaults_and_addresses_that_nothing_guards() -> None:
    closed = {"grpc.reflection": False, "backends.media_urls": False, "metrics.address": LOOPBACK}
    both = {**closed, "http.address": LOOPBACK, "grpc.address": LOOPBACK}
    assert dict(secure_defaults({})) == both
    assert dict(secure_defaults({"access_policy": "policy.toml"})) == closed
    with_tls = dict(secure_defaults({"http.tls.enabled": True}))
    assert with_tls == {**closed, "grpc.address": LOOPBACK}
    guarded = dict(secure_defaults({"grpc.restrictions": secret(*GRPC_GROUPS)}))
    assert guarded == {**closed, "http.address": LOOPBACK}


def test_metrics_that_everybody_reaches_are_told_of() -> None:
    told = Settings(**{**SECURE, "metrics": MetricsSettings(address="10.0.0.1")})
    line = (
        "--metrics-address=10.0.0.1 opens the metrics to everybody who reaches it, although"
        " --secure is given: that port has no TLS"
    )
    assert list(exposures(told)) == [f"{line} and no restrictions"]
    assert list(exposures(replace(told, access_policy="policy.toml"))) == [line]
    for quiet in (
        replace(told, secure=False),
        replace(told, metrics=MetricsSettings(address="10.0.0.1", enabled=False)),
        replace(told, metrics=MetricsSettings(address=LOOPBACK)),
    ):
        assert list(exposures(quiet)) == []


def test_a_policy_is_asked_before_files_of_clients_are_taken() -> None:
    asked = Settings(repository=EXPLICIT, model_upload=True, access_policy="policy.toml")
    assert list(exposures(asked)) == []
