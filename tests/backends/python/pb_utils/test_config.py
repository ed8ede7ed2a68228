"""Completion of a configuration, and the errors of contradictions."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from harness.recorded import answers, needs_answers
from penstock.core.config import ModelConfig as CoreConfig
from penstock.core.config import config_from_json, config_to_json
from penstock_backends.python.pb_utils.config import ModelConfig

X = {"name": "X", "data_type": "TYPE_FP32", "dims": [4]}


def config(**fields: Any) -> ModelConfig:
    return ModelConfig(json.dumps({"name": "m", **fields}))


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(ValueError) as error:  # noqa: PT011 (callers compare the whole text)
        act()
    return str(error.value)


def recorded_error(model: str) -> str:
    """The exception's text in the recorded answer to loading a model."""
    message: str = answers("load_errors.json")[f"load {model}"]["message"]
    return message.partition("ValueError: ")[2].partition("\n\nAt:")[0]


@pytest.mark.contract("PY-03")
def test_models_find_the_fields_that_triton_always_prints() -> None:
    assert config().as_dict() == {"name": "m", "max_batch_size": 0, "input": [], "output": []}


@pytest.mark.contract("PY-02", "AC-09")
def test_settings_can_be_read_as_a_configuration() -> None:
    given = config(backend="python")
    given.add_input({**X, "optional": True})
    given.add_output({"name": "Y", "data_type": "TYPE_STRING", "dims": (-1,)})
    given.set_max_batch_size(8)
    given.set_dynamic_batching()
    given.set_model_transaction_policy({"decoupled": True})
    read = config_from_json(json.loads(json.dumps(given.as_dict())))
    assert read.decoupled
    assert read.max_batch_size == 8
    assert read.dynamic_batching is not None
    assert read.inputs_by_name["X"].optional
    assert read.outputs_by_name["Y"].dims == (-1,)


def test_complete_form_is_returned_unchanged() -> None:
    core = CoreConfig(name="m", backend="python", max_batch_size=4)
    printed = ModelConfig(json.dumps(config_to_json(core, with_defaults=True)))
    assert config_from_json(printed.as_dict()) == core


def test_gaps_of_a_declared_tensor_are_filled() -> None:
    given = config(input=[{"name": "X", "data_type": "TYPE_INVALID", "dims": []}, {"name": "Z"}])
    given.add_input(X)
    given.add_input({**X, "name": "Z"})
    assert given.as_dict()["input"] == [X, {**X, "name": "Z"}]


def test_other_properties_of_a_declared_tensor_stay() -> None:
    given = config(input=[{**X, "reshape": {"shape": [2, 2]}}])
    given.add_input(X)
    assert given.as_dict()["input"] == [{**X, "reshape": {"shape": [2, 2]}}]


def test_model_keeps_its_own_dict() -> None:
    given, mine = config(), dict(X)
    given.add_input(mine)
    mine["dims"] = [9]
    assert given.as_dict()["input"] == [X]


def test_larger_batches_than_given_are_fine() -> None:
    given = config(max_batch_size=4)
    given.set_max_batch_size(8)
    assert given.as_dict()["max_batch_size"] == 8


def test_dynamic_batching_of_the_file_stays() -> None:
    given = config(dynamic_batching={"max_queue_delay_microseconds": 5})
    given.set_dynamic_batching()
    assert given.as_dict()["dynamic_batching"] == {"max_queue_delay_microseconds": 5}


@needs_answers
def test_unknown_property_is_refused() -> None:
    given = ModelConfig(json.dumps({"name": "auto_badkey"}))
    bad = {"name": "A", "data_type": "TYPE_FP32", "dims": [1], "bogus": 1}
    assert refused(lambda: given.add_input(bad)) == recorded_error("auto_badkey")


@pytest.mark.contract("AC-09")
@needs_answers
@pytest.mark.parametrize(
    ("model", "declared"),
    [
        ("auto_conflict_dtype", {"data_type": "TYPE_INT32", "dims": [4]}),
        ("auto_conflict_dims", {"data_type": "TYPE_FP32", "dims": [9]}),
    ],
)
def test_contradicting_input_is_refused(model: str, declared: Mapping[str, Any]) -> None:
    tensor = {"name": "INPUT0", **declared}
    given = ModelConfig(json.dumps({"name": model, "input": [tensor]}))
    text = refused(lambda: given.add_input({**X, "name": "INPUT0"}))
    assert text == recorded_error(model)


@needs_answers
def test_smaller_batches_than_given_are_refused() -> None:
    given = ModelConfig(json.dumps({"name": "auto_conflict_mbs", "max_batch_size": 16}))
    assert refused(lambda: given.set_max_batch_size(8)) == recorded_error("auto_conflict_mbs")


def test_output_has_no_optional() -> None:
    assert refused(lambda: config().add_output({**X, "optional": True})) == (
        "output 'X' in auto-complete-config function for model 'm' contains property other than"
        " 'name', 'data_type' and 'dims'."
    )


@pytest.mark.contract("PY-02")
@pytest.mark.parametrize("missing", ["data_type", "dims"])
def test_missing_property_is_named(missing: str) -> None:
    tensor = {key: value for key, value in X.items() if key != missing}
    assert refused(lambda: config().add_output(tensor)) == (
        f"output 'X' in auto-complete-config function for model 'm' is missing '{missing}'"
        " property."
    )


def test_missing_name_is_refused() -> None:
    assert refused(lambda: config().add_input({"dims": [1]})) == (
        "input in auto-complete-config function for model 'm' is missing 'name' property."
    )


def test_contradicting_optional_is_refused() -> None:
    given = config(input=[{**X, "optional": False}])
    assert refused(lambda: given.add_input({**X, "optional": True})) == (
        "model 'm', tensor 'X': the model expects optional True but the model configuration"
        " specifies optional False"
    )


@pytest.mark.parametrize("scheduler", ["sequence_batching", "ensemble_scheduling"])
def test_other_scheduler_is_not_replaced(scheduler: str) -> None:
    assert refused(config(**{scheduler: {}}).set_dynamic_batching) == (
        f"Configuration specified scheduling_choice as '{scheduler}', but auto-complete-config"
        " function for model 'm' tries to set scheduling_choice as 'dynamic_batching'"
    )


def test_contradicting_policy_is_refused() -> None:
    given = config(model_transaction_policy={"decoupled": True})
    assert refused(lambda: given.set_model_transaction_policy({"decoupled": False})) == (
        "trying to change decoupled property in auto-complete-config for model 'm', which is"
        " already set to 'True'."
    )


def test_policy_knows_one_property() -> None:
    given = config()
    assert refused(lambda: given.set_model_transaction_policy({"coupled": False})) == (
        "model transaction property in auto-complete-config function for model 'm' contains"
        " property other than 'decoupled'."
    )


def test_empty_policy_changes_nothing() -> None:
    given = config()
    given.set_model_transaction_policy({})
    assert given.as_dict()["model_transaction_policy"] == {}
