"""The module that models import."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.python.scripted import FakeReply, FakeRuntime
from penstock.core.request import InferenceRequest as CoreRequest
from penstock.core.tensor import Tensor as CoreTensor
from penstock_backends.python.pb_utils import api

CONFIG: dict[str, Any] = {
    "input": [{"name": "X", "dims": [1]}],
    "output": [{"name": "Y", "dims": [2]}],
}


@pytest.mark.contract("PY-30", "PY-39")
def test_tensors_are_found_by_name() -> None:
    core = CoreRequest("m", inputs={"X": CoreTensor.from_strings(["a"])})
    request = api.InferenceRequest.received(core, FakeReply())
    response = api.InferenceResponse([api.Tensor("Y", np.zeros(1))])
    found = api.get_input_tensor_by_name(request, "X")
    assert found is not None
    assert found.core is core.inputs["X"]
    assert api.get_input_tensor_by_name(request, "optional") is None
    assert api.get_output_tensor_by_name(response, "Y") is response.output_tensors()[0]
    assert api.get_output_tensor_by_name(response, "Z") is None


@pytest.mark.contract("PY-30")
def test_tensors_are_found_in_a_configuration() -> None:
    assert api.get_input_config_by_name(CONFIG, "X") == {"name": "X", "dims": [1]}
    assert api.get_output_config_by_name(CONFIG, "Y") == {"name": "Y", "dims": [2]}
    assert api.get_input_config_by_name(CONFIG, "Y") is None
    assert api.get_output_config_by_name({}, "Y") is None


@pytest.mark.parametrize(
    ("config", "decoupled"),
    [
        ({}, False),
        ({"model_transaction_policy": {}}, False),
        ({"model_transaction_policy": {"decoupled": True}}, True),
    ],
)
def test_policy_is_read_from_a_configuration(config: dict[str, Any], decoupled: bool) -> None:
    assert api.using_decoupled_model_transaction_policy(config) is decoupled


def test_model_knows_its_directory(process: FakeRuntime) -> None:
    assert api.get_model_dir() == "/models/m/1"


@pytest.mark.contract("PY-30")
def test_datatypes_go_both_ways() -> None:
    for number in range(1, 14):
        numpy_type = api.triton_to_numpy_type(number)
        assert api.numpy_to_triton_type(numpy_type) == number
        assert api.numpy_to_triton_type(np.dtype(numpy_type)) == number


@pytest.mark.parametrize("number", [0, 14, 15])
def test_other_numbers_are_no_numpy_type(number: int) -> None:
    assert api.triton_to_numpy_type(number) is None


@pytest.mark.parametrize("numpy_type", [np.str_, np.complex64, int, None])
def test_other_types_have_no_number(numpy_type: Any) -> None:
    assert api.numpy_to_triton_type(numpy_type) is None


def test_bytes_are_strings() -> None:
    assert api.numpy_to_triton_type(np.bytes_) == api.numpy_to_triton_type(np.object_) == 13


def test_names_of_a_configuration_have_numpy_types() -> None:
    assert api.triton_string_to_numpy("TYPE_FP16") is np.float16
    assert api.triton_string_to_numpy("TYPE_STRING") is np.object_
    assert api.triton_string_to_numpy("TYPE_BOOL") is bool
    with pytest.raises(KeyError):
        api.triton_string_to_numpy("TYPE_BF16")


def test_strings_are_written_behind_their_lengths() -> None:
    array = np.array([[b"a", "b\u00e9"], [3, b""]], np.object_)
    encoded = api.serialize_byte_tensor(array)
    assert encoded == b"\1\0\0\0a\3\0\0\0b\xc3\xa9\1\0\0\x003\0\0\0\0"
    assert isinstance(encoded, bytes)
    decoded = api.deserialize_bytes_tensor(encoded)
    assert decoded.tolist() == [b"a", b"b\xc3\xa9", b"3", b""]


def test_array_without_strings_is_not_serialized() -> None:
    assert api.serialize_byte_tensor(np.array([], np.object_)) == ()
    assert api.serialize_byte_tensor(np.array([1])) is None
    assert api.serialize_byte_tensor(np.array([b"a", b"bc"])) == b"\1\0\0\0a\2\0\0\0bc"
    assert api.deserialize_bytes_tensor(b"").shape == (0,)


def test_type_stubs_hold_the_same_module() -> None:
    """Type checkers read the stub package, which must declare exactly the same."""
    stubs = Path(api.__file__).parents[3] / "triton_python_backend_utils-stubs" / "__init__.pyi"
    lines = [line for line in stubs.read_text().splitlines() if line and line[0] != "#"]
    assert lines == [f"from {api.__name__} import *  # noqa: F403"]


def test_configuration_helper_is_made_of_json() -> None:
    assert api.ModelConfig(json.dumps(CONFIG)).as_dict()["output"] == CONFIG["output"]
