"""Secrets of restrictions that do not stand on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.reading import settings_of
from penstock.cli.arguments import UsageError

OPTIONS = ["http-restricted-api", "grpc-restricted-protocol", "openai-restricted-api"]


def _secret(value: str, option: str = OPTIONS[0]) -> str:
    settings = settings_of(f"--{option}=inference:key={value}")
    every = settings.http, settings.grpc, settings.openai
    (restriction,) = [one for endpoint in every for one in endpoint.restrictions]
    return restriction.value


@pytest.mark.parametrize("option", OPTIONS)
def test_a_secret_is_the_line_of_a_file(tmp_path: Path, option: str) -> None:
    (tmp_path / "secret").write_text("of=the:file \n")
    assert _secret(f"@{tmp_path}/secret", option) == "of=the:file "


@pytest.mark.parametrize("option", OPTIONS)
def test_a_secret_is_an_environment_variable(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    monkeypatch.setenv("ADMIN", "@of the environment")
    assert _secret("$ADMIN", option) == "@of the environment"


@pytest.mark.parametrize(("value", "secret"), [("@@home", "@home"), ("$$1", "$1"), ("a@$", "a@$")])
def test_a_first_character_that_is_meant_is_doubled(value: str, secret: str) -> None:
    assert _secret(value) == secret


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("@/no/such", "file '/no/such' cannot be opened: No such file or directory"),
        ("@/dev/null", "file '/dev/null' is empty"),
        ("$NOT_SET", "environment variable 'NOT_SET' is not set, or empty"),
        ("$", "environment variable '' is not set, or empty"),
    ],
)
def test_a_secret_that_cannot_be_read_fails_the_start(value: str, problem: str) -> None:
    with pytest.raises(UsageError, match=f"the secret cannot be read: {problem}"):
        settings_of(f"--http-restricted-api=inference:key={value}")


@pytest.mark.parametrize("name", ["PENSTOCK_ADMIN", "TRITON_ADMIN"])
def test_a_secret_is_no_variable_that_models_get(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "x")
    with pytest.raises(UsageError, match=f"'{name}' is one that model processes get, too"):
        _secret(f"${name}")
