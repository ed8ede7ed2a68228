"""Composing models: which are searched with the model that needs them, and under which names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.model_config_pb2 import ModelConfig
from penstock_client.perf.errors import Status
from penstock_client.tune.automatic import composed_values
from penstock_client.tune.composition import MOST_PARTS, Composition, part_setting, read_composition
from penstock_client.tune.errors import TuneError
from penstock_client.tune.model_files import ModelFiles
from tune.conftest import Tune

_STEP = 'step {{ model_name: "{name}" model_version: -1 {maps} }}'
_FIRST = 'input_map { key: "IN" value: "A" } output_map { key: "OUT" value: "C" }'
_LAST = 'input_map { key: "IN" value: "C" } output_map { key: "OUT" value: "B" }'
_ENSEMBLE = """\
platform: "ensemble"
max_batch_size: 2
input [ { name: "A" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "B" data_type: TYPE_FP32 dims: [ 2 ] } ]
"""
_COPY = """\
backend: "identity"
max_batch_size: 4
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 2 ] } ]
output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 2 ] } ]
"""
_CALLER = """\
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self._ask(request) for request in requests]

    def _ask(self, request):
        asked = pb_utils.InferenceRequest(
            model_name="sleepy", requested_output_names=["OUT"], inputs=request.inputs()
        )
        return pb_utils.InferenceResponse(asked.exec().output_tensors())
"""


def _write(models: Path, name: str, config: str) -> None:
    (models / name / "1").mkdir(parents=True)
    (models / name / "config.pbtxt").write_text(config)


def _ensemble(*steps: str) -> str:
    scheduled = " ".join(_STEP.format(name=name, maps="") for name in steps)
    return f"{_ENSEMBLE}ensemble_scheduling {{ {scheduled} }}\n"


@pytest.fixture
def both(models: Path) -> Path:
    """A repository whose ensemble `both` asks `copy`, and then `sleepy`."""
    _write(models, "copy", _COPY)
    scheduled = _STEP.format(name="copy", maps=_FIRST) + _STEP.format(name="sleepy", maps=_LAST)
    _write(models, "both", f"{_ENSEMBLE}ensemble_scheduling {{ {scheduled} }}\n")
    return models


@pytest.mark.slow
@pytest.mark.contract("MA-06")
def test_settings_of_an_ensembles_steps_are_searched(tune: Tune, both: Path) -> None:
    ran = tune("-c", "1", "--variants", "1", model="both")
    assert ran.status == 0, ran.printed
    names = ("instances", "max_batch_size", "queue_delay")
    assert set(ran.results["variants"][0]["settings"]) == {
        part_setting(model, name) for model in ("copy", "sleepy") for name in names
    }


@pytest.mark.slow
@pytest.mark.contract("MA-06")
def test_a_step_with_more_instances_is_written_beside_its_ensemble(tune: Tune, both: Path) -> None:
    ran = tune("--field", "sleepy/instances=1,2", "-c", "4", "--mode", "brute", model="both")
    assert ran.status == 0, ran.printed
    assert ran.results["best"]["changes"] == {"sleepy/instances": 2}
    assert "best: sleepy/instances 2" in ran.printed
    best = ran.folder / "best"
    assert (best / "config.pbtxt").read_text() == (both / "both" / "config.pbtxt").read_text()
    assert "count: 2" in (best / "sleepy" / "config.pbtxt").read_text()
    assert "count: 2" not in (both / "sleepy" / "config.pbtxt").read_text()
    assert "config.pbtxt of sleepy in the best" in (ran.folder / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.contract("MA-06")
def test_a_model_that_another_calls_is_loaded_and_searched(tune: Tune, models: Path) -> None:
    config = (models / "sleepy" / "config.pbtxt").read_text()
    _write(models, "caller", config.replace("sleepy", "caller"))
    (models / "caller" / "1" / "model.py").write_text(_CALLER)
    words = ["--instances", "1", "--composing", "sleepy", "-c", "1", "--variants", "1"]
    ran = tune(*words, model="caller")
    assert ran.status == 0, ran.printed
    (variant,) = ran.results["variants"]
    assert variant["loads"][0]["failed"] == 0
    assert "sleepy/instances" in variant["settings"]


def test_steps_of_ensembles_in_ensembles_are_found(models: Path) -> None:
    _write(models, "outer", _ensemble("inner", "copy", "outer"))
    _write(models, "inner", _ensemble("sleepy", "copy"))
    _write(models, "copy", _COPY)
    found = read_composition([models], "outer", [], with_steps=True)
    assert list(found.parts) == ["copy", "sleepy"]
    assert {each.name for each in found.neighbours} == {"inner"}


def test_no_more_steps_are_searched_than_a_search_can_do(models: Path) -> None:
    names = [f"copy{number}" for number in range(MOST_PARTS + 2)]
    for name in names:
        _write(models, name, _COPY)
    _write(models, "many", _ensemble(*names))
    assert list(read_composition([models], "many", [], with_steps=True).parts) == names[:MOST_PARTS]


def test_a_composing_model_that_is_not_there_is_named(models: Path) -> None:
    with pytest.raises(
        TuneError, match=r"no model 'sleppy' in .*; did you mean 'sleepy'"
    ) as raised:
        read_composition([models], "sleepy", ["sleppy"], with_steps=False)
    assert raised.value.status == Status.UNREACHABLE


def _files(name: str) -> ModelFiles:
    return ModelFiles(name, Path(), "")


_NAMES = st.sampled_from(["a", "b", "instances", "parameter.x/y"])


@given(st.dictionaries(st.tuples(st.sampled_from(["", "a", "b"]), _NAMES), st.integers()))
def test_each_model_gets_its_own_changes(changes: dict[tuple[str, str], int]) -> None:
    composition = Composition(_files("main"), {"a": _files("a"), "b": _files("b")})
    named = {
        part_setting(model, name) if model else name: value
        for (model, name), value in changes.items()
    }
    divided = {files.name: own for files, own in composition.divided(named)}
    assert list(divided) == ["a", "b", "main"]
    for (model, name), value in changes.items():
        assert divided[model or "main"][name] == value
    assert sum(map(len, divided.values())) == len(changes)


def test_steps_take_as_many_rows_as_a_request_to_their_ensemble_has() -> None:
    composition = Composition(_files("main"), {"a": _files("a")})
    configs: dict[str, dict[str, Any]] = {
        "main": {"max_batch_size": 8, "ensemble_scheduling": {}},
        "a": {"max_batch_size": 8},
    }
    values = composed_values(composition, configs, {})
    assert min(values["a/max_batch_size"]) == 8
    assert all(name.startswith("a/") for name in values)
    assert composed_values(composition, configs, {"a/instances": (1, 2)}) == {"a/instances": (1, 2)}


def test_a_configuration_is_a_load_requests_json() -> None:
    files = ModelFiles("m", Path(), 'name: "m" max_batch_size: 4')
    text = files.config_json({"instances": 2})
    config = ModelConfig(name="m", max_batch_size=4)
    config.instance_group.add(count=2)
    assert json_format.Parse(text, ModelConfig()) == config
