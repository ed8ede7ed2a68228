"""Models whose files are pinned: the hash decides before anything opens a file."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

import pytest

from fakes import write_model
from models.loading.lifecycle.house import House
from penstock.core.errors import InvalidRequestError
from penstock.models.repository.override import ModelOverride


def _sha256(content: bytes, file: str = "1/weights") -> str:
    digest = hashlib.sha256(content).hexdigest()
    return f'parameters {{ key: "penstock.sha256:{file}" value {{ string_value: "{digest}" }} }}'


def _md5(content: bytes) -> str:
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return (
        'model_repository_agents { agents { name: "checksum"'
        f' parameters {{ key: "MD5:1/weights" value: "{digest}" }} }} }}'
    )


def _write(house: House, content: bytes, config: str) -> Path:
    write_model(house.path, config=config)
    weights = house.path / "m" / "1" / "weights"
    weights.write_bytes(content)
    return weights


@pytest.mark.contract("R-39")
@pytest.mark.parametrize("pinned", [_sha256, _md5])
async def test_a_model_with_the_pinned_files_is_loaded(house: House, pinned: object) -> None:
    assert callable(pinned)
    _write(house, b"right", pinned(b"right"))
    await house.lifecycle.load("m")
    assert await house.ask() == ("1", ["a"])


@pytest.mark.contract("R-39")
@pytest.mark.parametrize("pinned", [_sha256, _md5])
async def test_another_file_fails_the_load_before_it_is_opened(
    house: House, pinned: object, caplog: pytest.LogCaptureFixture
) -> None:
    assert callable(pinned)
    _write(house, b"wrong", pinned(b"right"))
    said = "the file '1/weights' is not the one that '(penstock.sha256|MD5):1/weights' pins: its"
    state = "version 1 is at UNAVAILABLE state: Invalid argument"
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(
            InvalidRequestError, match=f"^load failed for model 'm': {state}: {said} hash is"
        ),
    ):
        await house.lifecycle.load("m")
    assert (house.builder.instances, house.builder.most_loading) == ([], 0)
    assert [line.partition(": ")[0] for line in caplog.messages] == ["failed to load 'm' version 1"]
    assert house.states[1].startswith("UNAVAILABLE: Invalid argument: the file '1/weights'")


async def test_a_missing_file_fails_the_load(house: House) -> None:
    _write(house, b"right", _sha256(b"right", "labels.txt"))
    said = "the file 'labels.txt', which 'penstock.sha256:labels.txt' pins, cannot be read: No such"
    with pytest.raises(InvalidRequestError, match=said):
        await house.lifecycle.load("m")


async def test_a_folder_is_no_file(house: House) -> None:
    _write(house, b"right", _sha256(b"", "1"))
    with pytest.raises(InvalidRequestError, match="cannot be read: Is a directory"):
        await house.lifecycle.load("m")


async def test_one_of_several_is_enough(house: House) -> None:
    _write(house, b"right", _sha256(b"right") + _sha256(b"other", "notes"))
    (house.path / "m" / "notes").write_bytes(b"changed")
    with pytest.raises(InvalidRequestError, match="the file 'notes' is not the one"):
        await house.lifecycle.load("m")


async def test_what_serves_goes_on_when_its_files_are_exchanged(house: House) -> None:
    weights = _write(house, b"right", _sha256(b"right"))
    await house.lifecycle.load("m")
    weights.write_bytes(b"wrong")
    with pytest.raises(InvalidRequestError, match="is not the one"):
        await house.lifecycle.load("m")
    assert await house.ask() == ("1", ["a"])
    weights.write_bytes(b"right")
    await house.lifecycle.load("m")
    assert len(house.builder.instances) == 2


@pytest.mark.contract("G-12")
async def test_files_of_a_load_request_may_be_pinned_too(house: House) -> None:
    digest = hashlib.sha256(b"right").hexdigest()
    pins = f'"parameters": {{"penstock.sha256:1/weights": {{"string_value": "{digest}"}}}}'
    config = f'{{"backend": "fake", {pins}}}'
    with pytest.raises(InvalidRequestError, match="is not the one"):
        await house.lifecycle.load("up", ModelOverride(config, {"file:1/weights": b"wrong"}))
    await house.lifecycle.load("up", ModelOverride(config, {"file:1/weights": b"right"}))
    assert await house.ask("up") == ("1", ["a"])
    await house.lifecycle.close()
