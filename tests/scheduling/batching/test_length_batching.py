"""The parameters of batching by length: values and errors."""

from __future__ import annotations

import re

import pytest

from fakes import model_config
from penstock.core.config import DynamicBatching, ModelConfig, ModelInput, Parameter
from penstock.core.errors import ConfigError
from penstock.core.tensor import DataType
from penstock.scheduling.batching.forming import LengthBatching


def _config(**parameters: str) -> ModelConfig:
    named = {f"penstock.{name}": Parameter(text) for name, text in parameters.items()}
    return model_config(dynamic_batching=DynamicBatching(), parameters=named)


def test_without_parameters_lengths_do_not_count() -> None:
    assert LengthBatching.from_config(_config()) == LengthBatching()


def test_a_budget_and_buckets_are_read() -> None:
    lengths = LengthBatching.from_config(
        _config(max_batch_elements="4096", length_buckets="16, 32,64")
    )
    assert lengths == LengthBatching(4096, (16, 32, 64), padded=True)


@pytest.mark.parametrize(("padding", "padded"), [({}, False), ({"padding": "IN=0"}, True)])
def test_ragged_inputs_are_padded_only_if_configured(padding: dict[str, str], padded: bool) -> None:
    ragged = (ModelInput("IN", DataType.INT32, dims=(-1,), allow_ragged_batch=True),)
    config = _config(**padding)
    config = model_config(input=ragged, parameters=config.parameters)
    assert LengthBatching.from_config(config).padded is padded


@pytest.mark.parametrize("text", ["0", "-1", "", "x", "1.5", "٣"])
def test_a_budget_that_is_no_number_is_refused(text: str) -> None:
    expected = f"parameter 'penstock.max_batch_elements' must be a number above 0, got '{text}'"
    with pytest.raises(ConfigError, match=re.escape(expected)):
        LengthBatching.from_config(_config(max_batch_elements=text))


@pytest.mark.parametrize("text", ["", "8,4", "4,4", "4,,8", "a"])
def test_buckets_that_do_not_rise_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=re.escape("parameter 'penstock.length_buckets' must be")):
        LengthBatching.from_config(_config(length_buckets=text))


@pytest.mark.parametrize("name", ["penstock.max_batch_elements", "penstock.length_buckets"])
def test_parameters_of_batches_need_a_batcher(name: str) -> None:
    with pytest.raises(ConfigError, match=f"parameter '{name}' needs dynamic_batching"):
        LengthBatching.from_config(model_config(parameters={name: Parameter("8")}))


@pytest.mark.contract("D-18")
def test_a_batching_library_of_another_server_is_refused_with_what_there_is_instead() -> None:
    parameters = {"TRITON_BATCH_STRATEGY_PATH": Parameter("/x/batchstrategy.so")}
    with pytest.raises(ConfigError, match=r"'penstock\.max_batch_elements' bounds"):
        LengthBatching.from_config(model_config(parameters=parameters))
