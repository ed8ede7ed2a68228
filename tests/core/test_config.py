"""The configuration as values, and as JSON."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from harness.configs import model_configs
from harness.examples import examples
from penstock.core.config import (
    DynamicBatching,
    Input,
    InstanceGroup,
    InstanceKind,
    ModelConfig,
    ModelInput,
    ModelOutput,
    ModelRateLimiter,
    Output,
    Parameter,
    QueuePolicy,
    RateLimiterResource,
    SequenceBatching,
    StrategyDirect,
    TensorReshape,
    TransactionPolicy,
    VersionPolicy,
    WarmupInput,
    config_from_json,
    config_to_json,
    fields_of,
)
from penstock.core.errors import ConfigError
from penstock.core.tensor import DataType

# -- values ----------------------------------------------------------------------------------


def test_tensors_are_found_by_name() -> None:
    config = ModelConfig(input=(ModelInput("a"), ModelInput("b")), output=(ModelOutput("c"),))
    assert config.inputs_by_name["b"] is config.input[1]
    assert list(config.outputs_by_name) == ["c"]


def test_tensors_are_found_by_name_after_a_change() -> None:
    config = replace(ModelConfig(input=(ModelInput("a"),)), input=(ModelInput("b"),))
    assert list(config.inputs_by_name) == ["b"]


def test_config_survives_the_way_to_another_process() -> None:
    config = ModelConfig("m", input=(ModelInput("a", DataType.FP32, dims=(-1,)),))
    copy = pickle.loads(pickle.dumps(config))
    assert copy == config
    assert copy.inputs_by_name == config.inputs_by_name


# -- types ---------------------------------------------------------------------------------------


def _refusal(cls: Any, *values: Any, **fields: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        cls(*values, **fields)
    return refused.value.message


@pytest.mark.parametrize("cls", [Input, Output])
def test_dimensions_of_a_tensor_are_named(cls: Any) -> None:
    """A third value by place would be the format of an input, and the dimensions of an output."""
    with pytest.raises(TypeError, match=rf"{cls.__name__}.__init__\(\) takes from 1 to 3"):
        cls("a", DataType.FP32, (-1,))


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("dims", [-1], "a tuple of int, not [-1]"),
        ("dims", [1], "a tuple of int, not [1]"),
        ("data_type", "TYPE_FP32", "a DataType, such as DataType.BOOL, not 'TYPE_FP32'"),
        ("reshape", (1,), "a TensorReshape, not (1,)"),
        ("optional", 1, "a bool, not 1"),
    ],
)
def test_field_of_another_type_is_refused(field: str, value: Any, expected: str) -> None:
    assert _refusal(Input, "a", **{field: value}) == f"Input 'a': {field} must be {expected}"


def test_boolean_is_not_a_number() -> None:
    assert _refusal(ModelConfig, max_batch_size=True) == (
        "ModelConfig: max_batch_size must be an int, not True"
    )


def test_one_tensor_is_not_a_tuple_of_tensors() -> None:
    text = _refusal(ModelConfig, "m", input=Input("a"))
    assert text == "ModelConfig 'm': input must be a tuple of Input, not an Input"


def test_the_wrong_element_is_named() -> None:
    assert _refusal(Input, "a", dims=(1, 1.5)) == "Input 'a': dims[1] must be an int, not 1.5"
    text = _refusal(ModelConfig, "m", input=(Input("a"), Output("b")))
    assert text == "ModelConfig 'm': input[1] must be an Input, not an Output"


def test_parameters_map_names_to_parameters() -> None:
    assert _refusal(ModelConfig, "m", parameters={"a": "1"}) == (
        "ModelConfig 'm': parameters must be a mapping of str to Parameter, not {'a': '1'}"
    )


def test_whole_number_may_stand_for_one_with_a_fraction() -> None:
    assert StrategyDirect(minimum_slot_utilization=1).minimum_slot_utilization == 1.0


@pytest.mark.contract("C-35")
def test_models_answer_once_unless_decoupled() -> None:
    assert not ModelConfig().decoupled
    assert not ModelConfig(model_transaction_policy=TransactionPolicy()).decoupled
    assert ModelConfig(model_transaction_policy=TransactionPolicy(decoupled=True)).decoupled


@pytest.mark.contract("C-32")
def test_parameter_is_its_text_or_none() -> None:
    config = ModelConfig(parameters={"a": Parameter("1")})
    assert config.parameter("a") == "1"
    assert config.parameter("b") is None


@pytest.mark.contract("C-10")
def test_backend_sees_the_reshaped_dimensions() -> None:
    assert ModelInput(dims=(1,), reshape=TensorReshape()).backend_dims == ()
    assert ModelOutput(dims=(4,)).backend_dims == (4,)


def test_queue_delay_is_in_seconds() -> None:
    assert DynamicBatching(max_queue_delay_microseconds=1500).max_queue_delay == 0.0015


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: ModelConfig(max_batch_size=1 << 31), "max_batch_size"),
        (lambda: ModelInput(dims=(1, 1 << 63)), "dims"),
        (lambda: QueuePolicy(max_queue_size=-1), "max_queue_size"),
        (lambda: InstanceGroup(gpus=(0, 1 << 40)), "gpus"),
    ],
)
def test_number_that_does_not_fit_is_refused_by_name(build: Any, field: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{field}: .* is out of the range of u?int"):
        build()


@pytest.mark.contract("C-28")
def test_only_one_way_of_scheduling_can_be_chosen() -> None:
    with pytest.raises(ConfigError, match=r"^dynamic_batching and sequence_batching: only one"):
        ModelConfig(dynamic_batching=DynamicBatching(), sequence_batching=SequenceBatching())


def test_a_choice_that_is_false_is_still_a_choice() -> None:
    with pytest.raises(ConfigError, match=r"^zero_data and random_data: only one"):
        WarmupInput(zero_data=False, random_data=True)


# -- JSON ------------------------------------------------------------------------------------


@given(model_configs())
@settings(max_examples=examples(50), deadline=None)
def test_json_is_equivalent_to_the_config(config: ModelConfig) -> None:
    assert config_from_json(config_to_json(config)) == config
    assert config_from_json(config_to_json(config, with_defaults=True)) == config


def test_json_leaves_defaults_out() -> None:
    assert config_to_json(ModelConfig()) == {}
    group = InstanceGroup(kind=InstanceKind.KIND_CPU)
    assert config_to_json(ModelConfig(instance_group=(group,))) == {
        "instance_group": [{"kind": "KIND_CPU"}]
    }


def test_json_with_defaults_prints_all_but_absent_messages() -> None:
    printed = config_to_json(ModelConfig(), with_defaults=True)
    absent = {"version_policy", "optimization", "model_operations", "response_cache"}
    assert not absent & set(printed)
    assert printed["input"] == []
    assert printed["parameters"] == {}
    assert printed["max_batch_size"] == 0


@pytest.mark.contract("C-40")
def test_json_with_defaults_prints_tensors_as_triton_does() -> None:
    config = ModelConfig(input=(ModelInput("a", DataType.BYTES, dims=(-1,)),))
    assert config_to_json(config, with_defaults=True)["input"] == [
        {
            "name": "a",
            "data_type": "TYPE_STRING",
            "format": "FORMAT_NONE",
            "dims": [-1],
            "is_shape_tensor": False,
            "allow_ragged_batch": False,
            "optional": False,
            "is_non_linear_format_io": False,
        }
    ]


def test_missing_datatype_has_a_name() -> None:
    tensor = ModelInput("a", data_type=None)
    printed = config_to_json(ModelConfig(input=(tensor,)), with_defaults=True)
    assert printed["input"][0]["data_type"] == "TYPE_INVALID"
    assert config_from_json({"input": [{"data_type": "TYPE_INVALID"}]}).input[0].data_type is None


def test_field_named_by_a_keyword_keeps_its_name() -> None:
    limiter = ModelRateLimiter((RateLimiterResource("r", global_=True, count=2),))
    printed = config_to_json(ModelConfig(instance_group=(InstanceGroup(rate_limiter=limiter),)))
    resource = {"name": "r", "global": True, "count": 2}
    assert printed["instance_group"][0]["rate_limiter"] == {"resources": [resource]}


def test_whole_numbers_have_no_fraction_in_json() -> None:
    batching = SequenceBatching(direct=StrategyDirect(minimum_slot_utilization=1.0))
    printed = config_to_json(ModelConfig(sequence_batching=batching))
    assert repr(printed["sequence_batching"]["direct"]["minimum_slot_utilization"]) == "1"


def test_number_that_json_cannot_write_is_a_word() -> None:
    batching = SequenceBatching(direct=StrategyDirect(minimum_slot_utilization=float("-inf")))
    printed = config_to_json(ModelConfig(sequence_batching=batching))
    assert printed["sequence_batching"]["direct"] == {"minimum_slot_utilization": "-Infinity"}


@pytest.mark.parametrize(
    "written",
    [
        {"max_batch_size": 8},
        {"max_batch_size": "8"},
        {"max_batch_size": 8.0},
        {"maxBatchSize": 8},
        {"max_batch_size": 8, "input": None},
    ],
)
def test_spellings_that_protobuf_accepts_are_read(written: dict[str, Any]) -> None:
    assert config_from_json(written) == ModelConfig(max_batch_size=8)


def test_enumerations_are_read_by_number_too() -> None:
    config = config_from_json({"input": [{"data_type": 11}], "instance_group": [{"kind": 2}]})
    assert config.input[0].data_type is DataType.FP32
    assert config.instance_group[0].kind is InstanceKind.KIND_CPU


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ([], "the configuration: expected an object"),
        ({"batch": 1}, "unknown field 'batch'"),
        ({"input": [{"nme": "a"}]}, r"unknown field 'input\[0\].nme'"),
        ({"parameters": {"a": {"value": "b"}}}, r"unknown field .parameters\['a'\].value."),
        ({"maxBatchSize": 1, "max_batch_size": 1}, "field 'max_batch_size' is given twice"),
        ({"input": "a"}, r"input\[0\]: expected an object"),
        ({"metric_tags": [{"a": "b"}]}, "metric_tags: expected an object"),
        ({"max_batchsize": 1}, "configuration; did you mean 'max_batch_size'"),
        ({"input": [{"dim": [1]}]}, "unknown field 'input.0..dim' .*; did you mean 'dims'"),
        ({"input": [{"data_type": "TYPE_FP_32"}]}, "got 'TYPE_FP_32'; did you mean 'TYPE_FP32'"),
        ({"parameters": []}, "parameters: expected an object"),
        ({"version_policy": "latest"}, "version_policy: expected an object"),
        ({"name": 1}, "name: expected a string, got 1"),
        ({"name": "\ud800"}, "name: expected a string, got '.ud800'"),
        ({"metric_tags": {"\ud800": "a"}}, r"metric_tags\['.ud800'\]: expected a string"),
        ({"\ud800": 1}, "unknown field '.ud800'"),
        ({"max_batch_size": True}, "max_batch_size: expected an integer, got True"),
        ({"max_batch_size": 1.5}, "max_batch_size: expected an integer, got 1.5"),
        ({"max_batch_size": "x"}, "max_batch_size: expected an integer, got 'x'"),
        ({"max_batch_size": float("inf")}, "max_batch_size: expected an integer, got inf"),
        ({"max_batch_size": 1 << 31}, "max_batch_size: .* out of the range of int32"),
        ({"input": [{"dims": [1 << 63]}]}, r"input\[0\].dims: .* out of the range of int64"),
        ({"input": [{"optional": 1}]}, r"input\[0\].optional: expected true or false"),
        ({"input": [{"data_type": "FP32"}]}, r"input\[0\].data_type: expected one of TYPE_INV"),
        ({"input": [{"data_type": 99}]}, r"input\[0\].data_type: expected one of TYPE_INVALID"),
        ({"instance_group": [{"kind": "CPU"}]}, r"instance_group\[0\].kind: expected one of KIND"),
        (
            {"sequence_batching": {"direct": {"minimum_slot_utilization": "x"}}},
            "sequence_batching.direct.minimum_slot_utilization: expected a number",
        ),
        (
            {"dynamic_batching": {"priority_queue_policy": {"one": {}}}},
            r"dynamic_batching.priority_queue_policy\['one'\]: expected an integer",
        ),
        (
            {"version_policy": {"all": {}, "latest": {}}},
            "version_policy.latest and all: only one of them may be given",
        ),
    ],
)
def test_what_json_gets_wrong_is_named(written: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        config_from_json(written)


def test_fields_are_described_in_the_order_of_printing() -> None:
    names = [field.name for field in fields_of(VersionPolicy)]
    assert names == ["latest", "all", "specific"]
