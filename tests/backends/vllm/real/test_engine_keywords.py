"""Arguments of `model.json` become keywords that vLLM's own `AsyncEngineArgs` takes."""

from __future__ import annotations

from dataclasses import MISSING, Field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from vllm.engine.arg_utils import AsyncEngineArgs

from backends.vllm.real.arguments_page import OBJECTS, PAGE, page
from penstock.core.errors import ModelLoadError
from penstock_backends.vllm.arguments.engine_args import EngineArguments
from penstock_backends.vllm.arguments.engine_keywords import engine_keywords

FIELDS = {field.name: field for field in fields(AsyncEngineArgs)}
FILE = Path("/models/m/1/model.json")


def keywords(**values: Any) -> dict[str, Any]:
    return engine_keywords(EngineArguments(values, FILE))


def default(field: Field[Any]) -> Any:
    """The default of an argument; of one that is an object of a class, `{}`."""
    made = field.default_factory is not MISSING
    value = field.default_factory() if field.default_factory is not MISSING else field.default
    return {} if made and is_dataclass(value) else value


@pytest.mark.contract("VL-01")
@pytest.mark.parametrize("name", FIELDS)
def test_every_argument_may_be_given_its_default(name: str) -> None:
    value = default(FIELDS[name])
    taken = keywords(**{name: value})[name]
    assert is_dataclass(taken) if value == {} and is_dataclass(taken) else taken == value


def test_samples_of_tritons_backend_load() -> None:
    """Their argument against a log of requests is one for it today, and off."""
    assert keywords(disable_log_requests="true") == {"enable_log_requests": False}


@pytest.mark.parametrize("name", OBJECTS)
def test_objects_become_what_the_command_line_makes_of_them(name: str) -> None:
    given, module, cls = OBJECTS[name]
    config = keywords(**{name: given})[name]
    if cls is None:
        assert config == given
        return
    assert type(config) is getattr(import_module(module), cls)
    taken = {key: getattr(config, key) for key in given}
    assert {key: getattr(value, "value", value) for key, value in taken.items()} == given


@pytest.mark.parametrize("name", sorted(set(OBJECTS) - {"pooler_config"}))
def test_engine_takes_them(name: str, version: Path) -> None:
    """As far as a configuration, without a start."""
    model = {"model": str(version / "model"), "dtype": "float32", "max_model_len": 256}
    config = AsyncEngineArgs(**keywords(**model, **{name: OBJECTS[name][0]})).create_engine_config()
    held = getattr(config, name)
    assert held is not None
    assert not isinstance(held, dict)


@pytest.mark.parametrize("name", [name for name in OBJECTS if OBJECTS[name][2]])
def test_unknown_name_within_an_object_fails_the_load(name: str) -> None:
    with pytest.raises(ModelLoadError, match=rf"(?s)'{name}' in '{FILE}' is not valid: .*no_such"):
        keywords(**{name: {"no_such": 1}})


@pytest.mark.contract("VL-01")
@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("max_seq_num", "; did you mean 'max_num_seqs'?"),
        ("max-model-len", "; did you mean 'max_model_len'?"),
        ("zzz", ""),
    ],
)
def test_unknown_argument_is_refused_with_the_nearest_name(name: str, end: str) -> None:
    with pytest.raises(ModelLoadError) as refused:
        keywords(**{name: 1})
    assert refused.value.message == f"unknown engine argument '{name}' in '{FILE}'{end}"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("max_num_seqs", "16", 16),
        ("gpu_memory_utilization", "0.5", 0.5),
        ("enforce_eager", "true", True),
        ("enforce_eager", "False", False),
        ("model", "7", "7"),
        ("dtype", "auto", "auto"),
        ("max_num_seqs", "many", "many"),
    ],
)
def test_numbers_and_booleans_may_be_texts(name: str, text: str, value: Any) -> None:
    taken = keywords(**{name: text})[name]
    assert (taken, type(taken)) == (value, type(value))


def test_page_of_arguments_is_up_to_date() -> None:
    """Write it with `.venv-vllm/bin/python -m backends.vllm.real.arguments_page`."""
    assert PAGE.read_text() == page()
