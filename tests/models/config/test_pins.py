"""Pins of a model's files: how they are written, and how they must not be."""

from __future__ import annotations

from typing import Any

import pytest

from harness.outcomes import raises_nothing
from models.config.validation.written import configured, refusal
from penstock.models.config.pins import Pin, pins_of
from penstock.models.config.validation import validate_polled

SHA, MD5 = "ab" * 32, "cd" * 16


def _parameter(key: str, value: str = SHA) -> dict[str, Any]:
    return {"parameters": {key: {"string_value": value}}}


def _agent(key: str = "MD5:1/a", value: str = MD5, name: str = "checksum") -> dict[str, Any]:
    return {"model_repository_agents": {"agents": [{"name": name, "parameters": {key: value}}]}}


@pytest.mark.contract("R-39")
def test_parameters_and_the_agent_pin_files() -> None:
    config = configured(**_parameter("penstock.sha256:1/b:c"), **_agent())
    with raises_nothing():
        validate_polled(config)
    found = [(pin.file, pin.algorithm, pin.digest) for pin in pins_of(config)]
    assert found == [("1/b:c", "sha256", SHA), ("1/a", "md5", MD5)]


def test_digits_may_be_capitals() -> None:
    with raises_nothing():
        validate_polled(configured(**_parameter("penstock.sha256:a", SHA.upper())))


@pytest.mark.contract("R-39")
@pytest.mark.parametrize(
    ("written", "said"),
    [
        (_parameter("penstock.sha256:a", "ab"), "must be 64 hexadecimal digits, not 'ab'"),
        (_parameter("penstock.sha256:a", "g" * 64), "must be 64 hexadecimal digits"),
        (_parameter("penstock.sha256:a", f"{SHA}\n"), "must be 64 hexadecimal digits"),
        (_parameter("penstock.sha256:../a"), "names no path of a file in the model's folder"),
        (_parameter("penstock.sha256:/etc/passwd"), "names no path of a file"),
        (_parameter("penstock.sha256:"), "names no path of a file"),
        (_parameter("penstock.sha256"), "is written for each file: 'penstock.sha256:1/model.onnx'"),
        (_parameter("penstock.sha265:a"), "is not a parameter that Penstock knows"),
        (_agent(value=SHA), "must be 32 hexadecimal digits"),
        (_agent("SHA256:1/a", SHA), "'SHA256:1/a' must be 'MD5:' and the path of a file"),
        (_agent("1/a"), "'1/a' must be 'MD5:' and the path of a file"),
        (_agent("MD5:1/../../a"), "names no path of a file"),
        (_agent(name="own"), "repository agent 'own' is not supported"),
    ],
    ids=str,
)
def test_others_are_refused_with_the_reason(written: dict[str, Any], said: str) -> None:
    text = refusal(configured(**written))
    assert text.startswith("model 'm': ")
    assert said in text


def test_agents_may_be_none() -> None:
    with raises_nothing():
        validate_polled(configured(model_repository_agents={}))


def test_the_kind_of_a_pin_is_how_its_name_begins() -> None:
    assert Pin("MD5:penstock.sha256:a", MD5).algorithm == "md5"
    assert Pin("penstock.sha256:MD5:a", SHA).file == "MD5:a"
