"""Tensors that are complete."""

from __future__ import annotations

from typing import Any

import pytest

from harness.outcomes import raises_nothing
from models.config.validation.written import TENSOR, configured, refusal
from penstock.models.config.validation import validate

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
    assert refusal(configured(**{side: [{**TENSOR, **tensor}]})) == f"{what} for m"


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
    with raises_nothing():
        validate(configured(input=[{**TENSOR, "dims": dims, "reshape": {"shape": shape}}]))


@pytest.mark.contract("C-08", "C-10")
def test_scalars_need_a_batch_dimension() -> None:
    tensor = {**TENSOR, "dims": [1], "reshape": {"shape": []}}
    assert refusal(configured(max_batch_size=0, input=[tensor])) == (
        "model input 'A' cannot have empty reshape for non-batching model as scalar tensors are "
        "not supported for m"
    )


@pytest.mark.contract("C-09")
def test_images_have_three_dimensions() -> None:
    image = {**TENSOR, "format": "FORMAT_NCHW"}
    validate(configured(input=[{**image, "dims": [3, 224, 224]}]))
    assert refusal(configured(input=[image])) == "model input NHWC/NCHW require 3 dims for m"


@pytest.mark.contract("C-11")
@pytest.mark.parametrize("side", ["input", "output"])
def test_layouts_of_tensorrt_are_for_tensorrt(side: str) -> None:
    assert refusal(configured(**{side: [{**TENSOR, "is_shape_tensor": True}]})) == (
        "shape tensors are only supported for TensorRT platform for m"
    )
    vectorised = {side: [{**TENSOR, "is_non_linear_format_io": True}]}
    assert refusal(configured(**vectorised)) == (
        "Non-linear IO format is only supported for the TensorRT platform for m"
    )
    assert refusal(configured(**vectorised, backend="tensorrt", platform="tensorrt_plan")) == (
        f"Non-linear IO format {side} requires 3 dims for m"
    )


@pytest.mark.contract("C-42")
def test_names_of_tensors_may_repeat() -> None:
    with raises_nothing():
        validate(configured(input=[TENSOR, TENSOR]))


def test_model_may_have_no_tensors() -> None:
    with raises_nothing():
        validate(configured(input=[], output=[]))


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
    assert refusal(configured(**written)) == f"{problem} for m"


def test_tensors_of_a_batch_that_are_right_pass() -> None:
    with raises_nothing():
        validate(configured(batch_input=[COUNT], batch_output=[SPLIT]))
