"""What the log of the start says about options that open something to strangers."""

from __future__ import annotations

import pytest

from penstock.settings import (
    Feature,
    GrpcSettings,
    HttpSettings,
    ModelControlMode,
    RepositorySettings,
    Restriction,
    Settings,
)
from penstock.settings.exposures import exposures

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
