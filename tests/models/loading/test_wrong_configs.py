"""A table of wrong configurations, refused as Triton 2.51 refuses them when it loads the models.

`wrong_configs.json` holds what that server was given, by model, and what it told: the error of the
load, or the log's reason where the error says only that the model could not be polled.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from fakes import FakeBackend, InstallBackend, Script
from penstock.core.errors import InferenceError
from penstock.models.loading.build_version import VersionBuilder
from penstock.models.loading.lifecycle import ModelLifecycle
from penstock.models.repository.repository import ModelRepository
from penstock.system.reaper import Reaper

_ROWS: dict[str, Any] = json.loads(Path(__file__).with_name("wrong_configs.json").read_text())
_OK = """
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 4 ] } ]
"""
_PARTS = {"ok": f'backend: "python"{_OK}', "ok4": f'backend: "python" max_batch_size: 4{_OK}'}
_AT_LOAD = "version 1 is at UNAVAILABLE state: Invalid argument: "
_ADVICE = re.compile("(none)?; write 'kind: KIND_CPU' .* serves such groups on the CPU")
"""What is said here beyond Triton's words, where there are no GPUs."""
_NO_VERSION = "at least one version must be available"


async def _told(root: Path, install: InstallBackend, name: str, versions: tuple[str, ...]) -> str:
    """What the client of a load is told, without the words that every failed load has."""
    install("fake", type("Scripted", (FakeBackend,), {"script": Script()}))
    for model, config in {**_PARTS, name: _ROWS[name]["config"]}.items():
        (root / model).mkdir(parents=True)
        text = config.replace('backend: "python"', 'backend: "fake"')
        (root / model / "config.pbtxt").write_text(text)
        for version in versions if model == name else ("1",):
            (root / model / version).mkdir()
    lifecycle = ModelLifecycle(ModelRepository([root]), VersionBuilder(lambda _: {}, Reaper()))
    with pytest.raises(InferenceError) as refused:
        await lifecycle.load(name)
    await lifecycle.close()
    polled = f"failed to load '{name}', failed to poll from model repository: "
    return _ADVICE.sub("", refused.value.message.removeprefix(polled)).strip()


@pytest.mark.contract("C-08", "C-10", "C-18", "C-20", "C-39", "C-42", "E-03")
@pytest.mark.parametrize("name", _ROWS)
async def test_a_wrong_configuration_is_refused_in_the_recorded_words(
    tmp_path: Path, install_backend: InstallBackend, name: str
) -> None:
    assert await _told(tmp_path / "m", install_backend, name, ("1",)) == _ROWS[name]["told"]


@pytest.mark.contract("M-14", "C-42")
@pytest.mark.parametrize("name", [n for n, row in _ROWS.items() if _NO_VERSION not in row["told"]])
async def test_wrong_configuration_is_reported_also_without_a_version_to_load(
    tmp_path: Path, install_backend: InstallBackend, name: str
) -> None:
    told = await _told(tmp_path / "m", install_backend, name, ())
    assert told == _ROWS[name]["told"].replace(_AT_LOAD, "").rstrip(";")
