"""Request parameters: the server's own, those for the model, and those that are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import InferenceError, InvalidRequestError, UnsupportedError
from penstock.protocol import grpc_service_pb2 as pb
from penstock.rpc.control_messages import (
    load_parameters,
    split_parameters,
    unload_dependents,
    wants_empty_final,
)

_OTHER_TYPES = {
    "sequence_id": ("bool_param", "double_param", "uint64_param"),
    "sequence_start": ("int64_param", "string_param", "double_param", "uint64_param"),
    "sequence_end": ("int64_param", "string_param", "double_param", "uint64_param"),
    "priority": ("bool_param", "string_param", "double_param"),
    "timeout": ("bool_param", "string_param", "double_param", "uint64_param"),
    "triton_enable_empty_final_response": ("int64_param", "string_param", "double_param"),
}
_VALUES: dict[str, Any] = {
    "bool_param": True,
    "int64_param": 3,
    "uint64_param": 3,
    "string_param": "x",
    "double_param": 0.5,
}


def message(**parameters: tuple[str, Any]) -> Any:
    """Parameters by name, each as field and value."""
    request = pb.ModelInferRequest()
    for key, (field, value) in parameters.items():
        setattr(request.parameters[key], field, value)
    return request.parameters


@pytest.mark.contract("GP-01", "GP-02", "GP-03", "GP-04", "X-05", "X-06")
@pytest.mark.parametrize(
    ("key", "field", "value", "becomes"),
    [
        ("sequence_id", "int64_param", 7, {"correlation_id": 7}),
        ("sequence_id", "int64_param", -1, {"correlation_id": (1 << 64) - 1}),
        ("sequence_id", "string_param", "x" * 128, {"correlation_id": "x" * 128}),
        ("sequence_start", "bool_param", True, {"sequence_start": True}),
        ("sequence_end", "bool_param", False, {"sequence_end": False}),
        ("priority", "int64_param", 0, {"priority": 0}),
        ("priority", "uint64_param", (1 << 64) - 1, {"priority": (1 << 64) - 1}),
        ("timeout", "int64_param", 1000, {"timeout": 1000}),
        ("triton_enable_empty_final_response", "bool_param", True, {}),
    ],
)
def test_servers_own_parameters_become_fields(
    key: str, field: str, value: Any, becomes: dict[str, Any]
) -> None:
    assert split_parameters(message(**{key: (field, value)})) == (becomes, {})


@pytest.mark.contract("GP-08", "X-22")
@given(
    st.dictionaries(
        st.text().filter(lambda key: not key.startswith("triton_") and key not in _OTHER_TYPES),
        st.one_of(
            st.tuples(st.just("bool_param"), st.booleans()),
            st.tuples(st.just("int64_param"), st.integers(-(1 << 63), (1 << 63) - 1)),
            st.tuples(st.just("string_param"), st.text()),
            st.tuples(st.just("double_param"), st.floats(allow_nan=False)),
        ),
    )
)
def test_all_others_go_to_the_model_with_their_types(given: dict[str, tuple[str, Any]]) -> None:
    fields, custom = split_parameters(message(**given))
    assert fields == {}
    assert custom == {key: value for key, (_, value) in given.items()}
    assert all(type(custom[key]) is type(value) for key, (_, value) in given.items())


@pytest.mark.contract("GP-01", "GP-02", "GP-03")
@pytest.mark.parametrize(
    ("key", "field"), [(key, field) for key, fields in _OTHER_TYPES.items() for field in fields]
)
def test_own_parameter_of_another_type_is_refused_by_name(key: str, field: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"invalid value type for '{key}' parameter, "):
        split_parameters(message(**{key: (field, _VALUES[field])}))


def test_parameter_without_a_value_is_refused() -> None:
    request = pb.ModelInferRequest()
    request.parameters["p"].SetInParent()
    with pytest.raises(InvalidRequestError, match="invalid value type for 'p' parameter"):
        split_parameters(request.parameters)


@pytest.mark.contract("GP-03", "GP-07", "X-06")
@pytest.mark.parametrize(
    ("key", "field", "value", "error", "text"),
    [
        ("priority", "int64_param", -1, InvalidRequestError, "expected value >= 0"),
        ("sequence_id", "string_param", "x" * 129, UnsupportedError, "longer than 128 characters"),
        ("sequence_id", "string_param", "é" * 65, UnsupportedError, "longer than 128 characters"),
        ("triton_new", "bool_param", True, InvalidRequestError, "reserved for Triton usage"),
        ("u", "uint64_param", 1, InvalidRequestError, "'u' parameter, expected int64_param"),
    ],
)
def test_value_that_cannot_be_is_refused(
    key: str, field: str, value: Any, error: type[InferenceError], text: str
) -> None:
    with pytest.raises(error, match=text):
        split_parameters(message(**{key: (field, value)}))


@pytest.mark.contract("GP-05")
def test_empty_final_response_is_sent_only_on_request() -> None:
    key = "triton_enable_empty_final_response"
    asked = message(**{key: ("bool_param", True)})
    declined = message(**{key: ("bool_param", False)})
    assert [wants_empty_final(p) for p in (asked, declined, message())] == [True, False, False]
    assert key not in message()


# -- loading and unloading ------------------------------------------------------------------------


def _repository(**fields: Any) -> pb.ModelRepositoryParameter:
    return pb.ModelRepositoryParameter(**fields)


@pytest.mark.contract("G-12")
def test_load_takes_a_configuration_and_files() -> None:
    config, file = _repository(string_param=""), _repository(bytes_param=b"")
    assert load_parameters({"config": config, "file:1/m": file}) == {"config": "", "file:1/m": b""}


@pytest.mark.contract("G-12")
@pytest.mark.parametrize(
    ("key", "parameter", "text"),
    [
        ("foo", _repository(string_param="x"), "unrecognized load parameter 'foo'."),
        (
            "config",
            _repository(int64_param=5),
            "invalid value type for load parameter 'config', expected string_param.",
        ),
        (
            "file:1/m",
            _repository(string_param="x"),
            "invalid value type for load parameter 'file:1/m', expected bytes_param.",
        ),
    ],
)
def test_other_load_parameters_are_refused(
    key: str, parameter: pb.ModelRepositoryParameter, text: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        load_parameters({key: parameter})
    assert refused.value.message == text


@pytest.mark.contract("G-13")
def test_unload_may_take_dependents_along() -> None:
    assert not unload_dependents({"other": _repository(string_param="x")})
    assert unload_dependents({"unload_dependents": _repository(bool_param=True)})
    with pytest.raises(InvalidRequestError, match=r"'unload_dependents' parameter, expected bool_"):
        unload_dependents({"unload_dependents": _repository(string_param="x")})
