"""What the log of the start says about options that open something to strangers."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.settings import (
    Feature,
    GrpcSettings,
    HttpSettings,
    ModelControlMode,
    RepositorySettings,
    Restriction,
    Settings,
    TlsSettings,
)
from penstock.settings.exposures import exposures, open_to_strangers

EXPLICIT = RepositorySettings(paths=("models",), control_mode=ModelControlMode.EXPLICIT)
ADMIN = (Restriction(frozenset({Feature.MODEL_REPOSITORY}), "admin", "secret"),)


def test_files_of_every_client_are_told_for_each_open_protocol() -> None:
    settings = Settings(repository=EXPLICIT, model_upload=True)
    assert [line.rpartition("needs ")[2] for line in exposures(settings)] == [
        "--http-restricted-api=model-repository:<key>=<value>",
        "--grpc-restricted-protocol=model-repository:<key>=<value>",
    ]


@pytest.mark.parametrize(
    "settings",
    [
        Settings(repository=EXPLICIT),
        Settings(repository=RepositorySettings(paths=("models",)), model_upload=True),
        Settings(
            repository=EXPLICIT,
            model_upload=True,
            http=HttpSettings(restrictions=ADMIN),
            grpc=GrpcSettings(restrictions=ADMIN),
        ),
        Settings(
            repository=EXPLICIT,
            model_upload=True,
            http=HttpSettings(enabled=False),
            grpc=GrpcSettings(enabled=False),
        ),
    ],
    ids=["no uploads", "no loads", "restricted", "no ports"],
)
def test_nothing_is_told_where_nobody_is_let_in(settings: Settings) -> None:
    assert list(exposures(settings)) == []


MODELS = RepositorySettings(paths=("models",))
LOCAL = {"http": HttpSettings(address="127.0.0.1"), "grpc": GrpcSettings(address="[::1]")}
CALLS = (Restriction(frozenset({Feature.INFERENCE}), "key", "secret"),)


def served(**fields: Any) -> Settings:
    return Settings(repository=MODELS, **fields)


KNOWN = TlsSettings(enabled=True, mutual=True)


@pytest.mark.contract("SEC-01")
@pytest.mark.parametrize(
    ("settings", "addresses"),
    [
        (served(), "0.0.0.0"),
        (served(http=LOCAL["http"]), "0.0.0.0"),
        (served(grpc=GrpcSettings(address="10.0.0.1")), "0.0.0.0 and 10.0.0.1"),
        (
            served(
                grpc=LOCAL["grpc"], http=HttpSettings(address="::", tls=TlsSettings(enabled=True))
            ),
            "::",
        ),
    ],
)
def test_a_server_for_everybody_says_so(settings: Settings, addresses: str) -> None:
    (line,) = open_to_strangers(settings)
    assert line.startswith(
        f"everybody who reaches {addresses} may call every model: --access-policy"
    )


@pytest.mark.parametrize(
    "settings",
    [
        served(access_policy="policy.toml"),
        served(http=LOCAL["http"], grpc=LOCAL["grpc"]),
        served(http=HttpSettings(address="unix:/x"), grpc=GrpcSettings(enabled=False)),
        served(http=HttpSettings(tls=KNOWN), grpc=GrpcSettings(restrictions=CALLS)),
    ],
    ids=["policy", "local", "a file", "certificates and secrets"],
)
def test_nothing_is_said_where_somebody_decides_who_may(settings: Settings) -> None:
    assert list(open_to_strangers(settings)) == []
