"""What is wrong with a configuration, in the words that clients know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from penstock.core.config import ModelConfig, config_from_json
from penstock.core.errors import ConfigError
from penstock.models.normalization import normalized
from penstock.models.repository import ModelRepository
from penstock.models.validation import validate, validate_polled
from recorded import answers, needs_answers, write_models

CPU = [{"name": "m_0", "kind": "KIND_CPU", "count": 1}]
TENSOR = {"name": "A", "data_type": "TYPE_FP32", "dims": [4]}


def _config(**written: Any) -> ModelConfig:
    """A configuration that is right, apart from what is written."""
    base = {
        "name": "m",
        "backend": "identity",
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": 8,
        "input": [TENSOR],
        "output": [TENSOR],
        "instance_group": CPU,
    }
    return config_from_json({**base, **written})


def _refusal(config: ModelConfig, gpus: tuple[int, ...] = ()) -> str:
    with pytest.raises(ConfigError) as refused:
        validate(config, gpus)
    return str(refused.value)


def test_config_that_is_right_passes() -> None:
    validate(_config())


def test_tensors_and_instances_may_still_be_missing_when_polled() -> None:
    config = _config(input=[{}], output=[{"name": "A"}], instance_group=[])
    validate_polled(config)
    assert _refusal(config) == "model input must specify 'name' for m"


# -- name, backend, batch size -------------------------------------------------------------------


@pytest.mark.contract("C-03", "C-42")
@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"name": ""}, "model configuration must specify 'name'"),
        ({"backend": ""}, "unexpected platform type '' for m"),
        ({"backend": "", "platform": "mine"}, "unexpected platform type 'mine' for m"),
        (
            {"platform": "ensemble"},
            "Ensemble model 'm' must have platform type 'ensemble' and empty backend type",
        ),
        (
            {"backend": "onnxruntime", "platform": "tensorrt_plan"},
            "unexpected 'platform' and 'backend' pair, got:tensorrt_plan, onnxruntime",
        ),
        (
            {"backend": "tensorflow"},
            "unexpected 'platform' and 'backend' pair, got:, tensorflow",
        ),
        ({"max_batch_size": -1}, "'max_batch_size' must be non-negative value for m"),
        ({"version_policy": None}, "must specify 'version policy' for m"),
    ],
)
def test_model_must_be_one_thing(written: dict[str, Any], problem: str) -> None:
    assert _refusal(_config(**written)) == problem


def test_unknown_backend_may_have_any_platform() -> None:
    validate(_config(platform="mine"))


CACHE = {"response_cache": {"enable": True}}


@pytest.mark.contract("RC-05")
def test_cached_responses_are_single() -> None:
    assert _refusal(_config(**CACHE, model_transaction_policy={"decoupled": True})) == (
        "Response Cache does not currently support model m with 'decoupled' transaction policy. "
        "Please disable the response cache."
    )
    assert _refusal(_config(**CACHE, sequence_batching={})) == (
        "Response Cache does not currently support model m with sequence batching scheduler. "
        "Please disable the response cache."
    )


def test_decoupled_model_may_have_its_cache_turned_off() -> None:
    decoupled = {"decoupled": True}
    validate(_config(response_cache={"enable": False}, model_transaction_policy=decoupled))


@pytest.mark.contract("C-38")
@pytest.mark.parametrize(
    ("control", "problem"),
    [
        ({}, "metric control must specify 'metric_identifier'"),
        ({"metric_identifier": {}}, "metric identifier must specify non-empty 'family'"),
        (
            {"metric_identifier": {"family": "f"}},
            "metric control must specify 'histogram_options'",
        ),
        (
            {"metric_identifier": {"family": "f"}, "histogram_options": {}},
            "histogram options must specify non-empty 'buckets'",
        ),
    ],
)
def test_change_to_a_metric_is_complete(control: dict[str, Any], problem: str) -> None:
    assert _refusal(_config(model_metrics={"metric_control": [control]})) == problem


def test_complete_change_to_a_metric_passes() -> None:
    control = {"metric_identifier": {"family": "f"}, "histogram_options": {"buckets": [1, 2.5]}}
    validate(_config(model_metrics={"metric_control": [control]}))


# -- dynamic batching ----------------------------------------------------------------------------

DELAY = {"timeout_action": "DELAY", "default_timeout_microseconds": 5}


@pytest.mark.contract("C-07")
@pytest.mark.parametrize(
    ("batching", "problem"),
    [
        ({"preferred_batch_size": [4, 0]}, "dynamic batching preferred size must be positive"),
        (
            {"preferred_batch_size": [9]},
            "dynamic batching preferred size must be <= max batch size",
        ),
        ({"priority_levels": 2}, "default priority level must be in range [1, 2]"),
        (
            {"priority_levels": 2, "default_priority_level": 5},
            "default priority level must be in range [1, 2]",
        ),
        (
            {
                "priority_levels": 2,
                "default_priority_level": 1,
                "priority_queue_policy": {"1": {}, "3": {}},
            },
            "priority queue policy must have priority level in range [1, 2]",
        ),
        (
            {"preserve_ordering": True, "priority_levels": 2, "default_priority_level": 1},
            "Only one priority level is allowed when 'preserve_ordering' is true",
        ),
        (
            {"preserve_ordering": True, "default_queue_policy": DELAY},
            "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true",
        ),
        (
            {
                "preserve_ordering": True,
                "priority_levels": 1,
                "default_priority_level": 1,
                "priority_queue_policy": {"1": DELAY},
            },
            "Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true",
        ),
    ],
)
def test_dynamic_batching_fits_together(batching: dict[str, Any], problem: str) -> None:
    assert _refusal(_config(dynamic_batching=batching)) == f"{problem} for m"


@pytest.mark.parametrize(
    "batching",
    [
        {},
        {"preferred_batch_size": [1, 8]},
        {"priority_levels": 2, "default_priority_level": 2, "priority_queue_policy": {"2": DELAY}},
        {"preserve_ordering": True, "default_queue_policy": {"timeout_action": "DELAY"}},
    ],
)
def test_dynamic_batching_that_is_right_passes(batching: dict[str, Any]) -> None:
    validate(_config(dynamic_batching=batching))


def test_model_that_does_not_batch_prefers_no_size() -> None:
    config = _config(max_batch_size=0, dynamic_batching={"preferred_batch_size": [4]})
    assert _refusal(config) == "dynamic batching preferred size must be <= max batch size for m"


# -- sequences -----------------------------------------------------------------------------------

START = {"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 1]}
CORRID = {"kind": "CONTROL_SEQUENCE_CORRID", "data_type": "TYPE_UINT64"}


def _sequences(*tensors: tuple[str, dict[str, Any]], **more: Any) -> ModelConfig:
    inputs = [{"name": name, "control": [control]} for name, control in tensors]
    return _config(sequence_batching={"control_input": inputs, **more})


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (_sequences(("", START)), "sequence batching control tensor must have a name for m"),
        (
            _sequences(("A", START), ("A", CORRID)),
            "sequence batching control tensor 'A' is specified for multiple control kinds for m",
        ),
        (
            _sequences(("A", START), ("B", START)),
            "sequence batching specifies multiple CONTROL_SEQUENCE_START tensors for m",
        ),
        (
            _sequences(("A", {"kind": "CONTROL_SEQUENCE_END"})),
            "sequence batching must specify either 'int32_false_true', 'fp32_false_true' or "
            "'bool_false_true' for CONTROL_SEQUENCE_END for m",
        ),
        (
            _sequences(("A", {**START, "bool_false_true": [False, True]})),
            "sequence batching specifies more than one from 'int32_false_true', "
            "'fp32_false_true' and 'bool_false_true' for CONTROL_SEQUENCE_START for m",
        ),
        (
            _sequences(("A", {"fp32_false_true": [0]})),
            "sequence batching control 'fp32_false_true' must have exactly 2 entries "
            "for CONTROL_SEQUENCE_START for m",
        ),
        (
            _sequences(("A", {**CORRID, "int32_false_true": [0, 1]})),
            "sequence batching must not specify either 'int32_false_true', 'fp32_false_true' or "
            "'bool_false_true' for CONTROL_SEQUENCE_CORRID for m",
        ),
        (
            _sequences(("A", {**CORRID, "data_type": "TYPE_FP32"})),
            "unexpected data type for control CONTROL_SEQUENCE_CORRID for m. Allowed data types "
            "are TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32 and TYPE_STRING",
        ),
        (
            _sequences(oldest={"preferred_batch_size": [0]}),
            "sequence batching preferred batch size must be positive for m",
        ),
        (
            _sequences(oldest={"preferred_batch_size": [9]}),
            "sequence batching preferred batch size must be <= max batch size for m",
        ),
        (
            _sequences(direct={"minimum_slot_utilization": 1.5}),
            "sequence batching minimum slot utilization must be in range (0.0, 1.0] for m",
        ),
    ],
)
def test_sequence_batching_fits_together(config: ModelConfig, problem: str) -> None:
    assert _refusal(config) == problem


def test_sequence_batching_that_is_right_passes() -> None:
    validate(_sequences(("A", START), ("B", CORRID), direct={"minimum_slot_utilization": 1}))


# -- ensembles -----------------------------------------------------------------------------------

STEP = {"model_name": "a", "input_map": {"A": "A"}, "output_map": {"A": "B"}}


def _ensemble(*steps: dict[str, Any], **written: Any) -> ModelConfig:
    base = {
        "backend": "",
        "platform": "ensemble",
        "output": [{**TENSOR, "name": "B"}],
        "instance_group": [],
        "ensemble_scheduling": {"step": list(steps)},
    }
    return _config(**{**base, **written})


def test_ensemble_that_is_right_passes() -> None:
    validate(_ensemble(STEP))


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            _ensemble(ensemble_scheduling=None),
            "ensemble scheduling must be set for ensemble m whose platform is ensemble",
        ),
        (
            _ensemble(STEP, platform="", backend="identity"),
            "ensemble scheduling cannot be set for model 'm' whose platform is not ensemble",
        ),
        (
            _ensemble(STEP, instance_group=CPU),
            "instance group should not be specified for ensemble 'm'",
        ),
        (
            _ensemble(STEP, optimization={}),
            "optimization should not be specified for ensemble 'm'",
        ),
        (
            _ensemble(STEP, model_warmup=[{}]),
            "model_warmup can not be specified for ensemble 'm'",
        ),
        (_ensemble(), "must specify 'step' for ensemble 'm'"),
        (
            _ensemble(STEP, {**STEP, "model_name": ""}),
            "must specify 'model_name' in step 1 of ensemble 'm'",
        ),
        (
            _ensemble({**STEP, "input_map": {}}),
            "must specify 'input_map' in step 0 of ensemble 'm'",
        ),
        (
            _ensemble({**STEP, "output_map": {}}),
            "must specify 'output_map' in step 0 of ensemble 'm'",
        ),
        (
            _ensemble(STEP, input=[{**TENSOR, "name": "C"}]),
            "ensemble input 'C' for ensemble m' is not used",
        ),
        (
            _ensemble(STEP, output=[{**TENSOR, "name": "C"}]),
            "ensemble output 'C' for ensemble m' is not used",
        ),
    ],
)
def test_ensemble_fits_together(config: ModelConfig, problem: str) -> None:
    assert _refusal(config) == problem


# -- tensors -------------------------------------------------------------------------------------

RESHAPES = "has different size for dims and reshape"
LENGTHS = "must be integer >= 1, or -1 to indicate a variable-size dimension"


@pytest.mark.contract("C-08", "C-15")
@pytest.mark.parametrize("side", ["input", "output"])
@pytest.mark.parametrize(
    ("tensor", "problem"),
    [
        ({"name": ""}, ""),
        ({"data_type": None}, "must specify 'data_type'"),
        ({"dims": []}, "must specify 'dims'"),
        ({"dims": [0]}, f"dimension {LENGTHS}"),
        ({"dims": [4, -2]}, f"dimension {LENGTHS}"),
        ({"reshape": {"shape": [0]}}, f"reshape dimensions {LENGTHS}"),
        ({"reshape": {"shape": [5]}}, RESHAPES),
        ({"reshape": {"shape": []}}, RESHAPES),
        ({"reshape": {"shape": [-1]}}, RESHAPES),
        ({"dims": [-1, 6], "reshape": {"shape": [2, -1, 3]}}, RESHAPES),
        (
            {"dims": [-1, 6], "reshape": {"shape": [-1, -1, 6]}},
            "has different number of variable-size dimensions for dims and reshape",
        ),
    ],
)
def test_tensor_is_complete(side: str, tensor: dict[str, Any], problem: str) -> None:
    what = f"model {side} 'A' {problem}" if problem else f"model {side} must specify 'name'"
    assert _refusal(_config(**{side: [{**TENSOR, **tensor}]})) == f"{what} for m"


@pytest.mark.contract("C-10")
@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        ([4], [2, 2]),
        ([1], []),
        ([1, 1], []),
        ([-1], [-1]),
        ([2, 4, -1, 6], [8, -1, 1, 6]),
    ],
)
def test_reshape_that_keeps_the_elements_passes(dims: list[int], shape: list[int]) -> None:
    validate(_config(input=[{**TENSOR, "dims": dims, "reshape": {"shape": shape}}]))


@pytest.mark.contract("C-08", "C-10")
def test_scalars_need_a_batch_dimension() -> None:
    tensor = {**TENSOR, "dims": [1], "reshape": {"shape": []}}
    assert _refusal(_config(max_batch_size=0, input=[tensor])) == (
        "model input 'A' cannot have empty reshape for non-batching model as scalar tensors are "
        "not supported for m"
    )


@pytest.mark.contract("C-09")
def test_images_have_three_dimensions() -> None:
    image = {**TENSOR, "format": "FORMAT_NCHW"}
    validate(_config(input=[{**image, "dims": [3, 224, 224]}]))
    assert _refusal(_config(input=[image])) == "model input NHWC/NCHW require 3 dims for m"


@pytest.mark.contract("C-11")
@pytest.mark.parametrize("side", ["input", "output"])
def test_layouts_of_tensorrt_are_for_tensorrt(side: str) -> None:
    assert _refusal(_config(**{side: [{**TENSOR, "is_shape_tensor": True}]})) == (
        "shape tensors are only supported for TensorRT platform for m"
    )
    vectorised = {side: [{**TENSOR, "is_non_linear_format_io": True}]}
    assert _refusal(_config(**vectorised)) == (
        "Non-linear IO format is only supported for the TensorRT platform for m"
    )
    assert _refusal(_config(**vectorised, backend="tensorrt", platform="tensorrt_plan")) == (
        f"Non-linear IO format {side} requires 3 dims for m"
    )


@pytest.mark.contract("C-42")
def test_names_of_tensors_may_repeat() -> None:
    validate(_config(input=[TENSOR, TENSOR]))


def test_model_may_have_no_tensors() -> None:
    validate(_config(input=[], output=[]))


COUNT = {"target_name": ["N"], "data_type": "TYPE_INT32", "source_input": ["A"]}
SPLIT = {"target_name": ["A"], "source_input": ["A"]}


@pytest.mark.contract("C-18", "C-19", "C-20")
@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (
            {"batch_input": [{**COUNT, "source_input": []}]},
            "batch input kind 'BATCH_ELEMENT_COUNT' expects 1 source input, got 0",
        ),
        (
            {"batch_input": [{**COUNT, "data_type": "TYPE_INT64"}]},
            "batch input data type must be TYPE_INT32 or TYPE_FP32",
        ),
        (
            {"batch_input": [{**COUNT, "source_input": ["B"]}]},
            "unknown source input name 'B'",
        ),
        (
            {"batch_output": [{**SPLIT, "source_input": ["A", "A"]}]},
            "batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects 1 source input, got 2",
        ),
        ({"batch_output": [{**SPLIT, "source_input": ["B"]}]}, "unknown source input name 'B'"),
        ({"batch_output": [{**SPLIT, "target_name": ["B"]}]}, "unknown target output name 'B'"),
        (
            {"batch_output": [{**SPLIT, "target_name": ["A", "A"]}]},
            "target output name 'A' can only be specified once",
        ),
    ],
)
def test_tensors_of_a_batch_fit_together(written: dict[str, Any], problem: str) -> None:
    assert _refusal(_config(**written)) == f"{problem} for m"


def test_tensors_of_a_batch_that_are_right_pass() -> None:
    validate(_config(batch_input=[COUNT], batch_output=[SPLIT]))


# -- instances -----------------------------------------------------------------------------------


def _instances(**group: Any) -> ModelConfig:
    return _config(instance_group=[{"name": "m_0", "count": 1, **group}])


@pytest.mark.parametrize(
    ("group", "gpus", "problem"),
    [
        (
            {"kind": "KIND_CPU", "gpus": [0]},
            (0,),
            "has kind KIND_CPU but specifies one or more GPUs",
        ),
        (
            {"kind": "KIND_MODEL", "gpus": [0]},
            (0,),
            "has kind KIND_MODEL but specifies one or more GPUs",
        ),
        ({"kind": "KIND_GPU"}, (), "has kind KIND_GPU but no GPUs are available"),
        ({"kind": "KIND_GPU"}, (0,), "has kind KIND_GPU but specifies no GPUs"),
        (
            {"kind": "KIND_GPU", "gpus": [2]},
            (0, 1),
            "specifies invalid or unsupported gpu id 2. GPUs with at least the minimum required "
            "CUDA compute compatibility of 6.000000 are: 0, 1",
        ),
        ({"kind": "KIND_AUTO"}, (), "has unexpected kind KIND_AUTO"),
        (
            {"kind": "KIND_CPU", "profile": ["1"]},
            (),
            "and platform specifies profile field which is only supported for TensorRT models",
        ),
    ],
)
@pytest.mark.contract("I-02", "I-03", "I-06")
def test_instances_run_where_they_can(
    group: dict[str, Any], gpus: tuple[int, ...], problem: str
) -> None:
    assert _refusal(_instances(**group), gpus) == f"instance group m_0 of model m {problem}"


def test_model_has_instances() -> None:
    problem = "must specify one or more 'instance group's for m"
    assert _refusal(_config(instance_group=[])) == problem


def test_instances_on_gpus_that_are_there_pass() -> None:
    validate(_instances(kind="KIND_GPU", gpus=[1]), (0, 1))


# -- as recorded ---------------------------------------------------------------------------------

REFUSED_ELSEWHERE = ("py_", "auto_", "bad_backend", "warmup_bad")
"""Models with problems that their backend finds, or a request."""


def _recorded() -> list[tuple[str, str]]:
    """Models that were found wrong when they were loaded, and the reason shown in the index."""
    index = answers("index_after_failed_loads.json").get("index", {})
    models = index.get("response", {}).get("models", [])
    return [
        (model["name"], model["reason"].removeprefix("Invalid argument: "))
        for model in models
        if model.get("state") == "UNAVAILABLE" and not model["name"].startswith(REFUSED_ELSEWHERE)
    ]


@pytest.mark.contract("C-42")
@needs_answers
@pytest.mark.parametrize(("name", "reason"), _recorded())
def test_reason_is_the_recorded_one(tmp_path: Path, name: str, reason: str) -> None:
    config = normalized(ModelRepository([write_models("bad", tmp_path)]).read(name).config)
    with pytest.raises(ConfigError, match=f"^{re.escape(reason)}$"):
        validate(config)
