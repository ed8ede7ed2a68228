"""What requests must be like, held against what the real server answered."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes import model_config
from harness.recorded import answers, needs_answers, write_models
from penstock.core.config import ModelConfig, ModelInput
from penstock.core.errors import InvalidRequestError
from penstock.core.request import InferenceRequest
from penstock.core.tensor import DataType, Tensor, encode_elements
from penstock.models.repository.repository import ModelRepository
from penstock.models.serving.admission import Admission

VALID = [t for t in DataType if t is not DataType.INVALID]


def _config(*inputs: ModelInput, max_batch_size: int = 0) -> ModelConfig:
    return model_config(input=inputs, max_batch_size=max_batch_size)


def _input(name: str = "IN", *dims: int, **fields: Any) -> ModelInput:
    return ModelInput(name=name, **{"data_type": DataType.INT32, "dims": dims or (-1,), **fields})


def _zeros(*shape: int) -> Tensor:
    return Tensor.from_numpy(np.zeros(shape, np.int32))


def _check(config: ModelConfig, inputs: Mapping[str, Tensor], **fields: Any) -> int:
    return Admission(config).check(InferenceRequest("m", inputs=inputs, **fields))


def _refusal(config: ModelConfig, inputs: Mapping[str, Tensor], **fields: Any) -> str:
    with pytest.raises(InvalidRequestError) as refused:
        _check(config, inputs, **fields)
    return refused.value.message


# -- as recorded ---------------------------------------------------------------------------------

RECORDED = (
    "extra dimension",
    "empty shape",
    "empty shape variable dims",
    "batch too large",
    "shape overflow",
    "shape overflow one dim",
    "wrong dtype",
    "invalid dtype name",
    "empty dtype",
    "missing input",
    "no inputs",
    "empty input name",
    "one known one unknown output",
    "raw: too short",
    "raw: odd length",
    "typed: bytes too few",
    "bytes raw: count too large",
    "sequence: control tensor given",
    "ensemble missing input",
    "ensemble wrong dtype",
)
"""Requests that the core refuses for their content, not a codec or a scheduler."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> ModelRepository:
    return ModelRepository([write_models("good", tmp_path_factory.mktemp("good"))])


def _recorded_request(message: Mapping[str, Any]) -> InferenceRequest:
    raw = iter(message.get("raw_input_contents", ()))
    known = {t.value: t for t in VALID}
    inputs: dict[str, Tensor] = {}
    for tensor in message.get("inputs", ()):
        datatype = known.get(tensor.get("datatype"), DataType.INVALID)
        shape = [int(size) for size in tensor.get("shape", ())]
        inputs[tensor.get("name", "")] = Tensor(datatype, shape, _recorded_buffer(tensor, raw))
    outputs = tuple(output["name"] for output in message.get("outputs", ()))
    return InferenceRequest(message["model_name"], inputs=inputs, requested_outputs=outputs)


def _recorded_buffer(tensor: Mapping[str, Any], raw: Any) -> bytes:
    if "contents" not in tensor:
        return base64.b64decode(next(raw))
    return encode_elements(map(base64.b64decode, tensor["contents"]["bytes_contents"]))


@pytest.mark.contract("V-01", "V-02", "V-03", "V-04", "V-05", "V-07", "V-08", "V-09", "GP-13")
@needs_answers
@pytest.mark.parametrize("case", RECORDED)
def test_a_request_is_refused_in_the_words_of_the_real_server(
    repository: ModelRepository, case: str
) -> None:
    answer = answers("grpc_infer_errors.json")[case]
    request = _recorded_request(answer["request"])
    with pytest.raises(InvalidRequestError) as refused:
        Admission(repository.read(request.model_name).config).check(request)
    assert refused.value.message == answer["message"]


@needs_answers
@pytest.mark.parametrize("case", ["binary: bytes malformed", "binary: bytes count short"])
def test_strings_that_came_over_http_are_refused_in_the_same_words(
    repository: ModelRepository, case: str
) -> None:
    answer = answers("http_infer_errors.json")[case]
    length = int(answer["headers"]["Inference-Header-Content-Length"])
    (tensor,) = json.loads(answer["body"][:length])["inputs"]
    buffer = answer["body"][length:].encode("latin-1")
    inputs = {"INPUT0": Tensor(DataType.BYTES, tensor["shape"], buffer)}
    config = repository.read("identity_bytes").config
    assert _refusal(config, inputs) == answer["reply"]["error"]


@needs_answers
def test_a_batch_of_no_rows_is_refused_in_the_same_words(repository: ModelRepository) -> None:
    answer = answers("http_infer_errors.json")["zero batch"]
    inputs = {name: _zeros(0, 16) for name in ("INPUT0", "INPUT1")}
    assert _refusal(repository.read("simple").config, inputs) == answer["reply"]["error"]


# -- what is admitted ----------------------------------------------------------------------------


@given(st.integers(1, 8), st.integers(0, 5))
def test_a_request_has_the_rows_of_its_first_dimension(rows: int, width: int) -> None:
    config = _config(_input(), max_batch_size=8)
    assert _check(config, {"IN": _zeros(rows, width)}) == rows


def test_a_request_has_one_row_when_the_model_does_not_batch() -> None:
    assert _check(_config(_input()), {"IN": _zeros(5)}) == 1


def test_a_batch_of_nothing_takes_the_room_of_one_row() -> None:
    config = _config(_input(data_type=DataType.BYTES), max_batch_size=8)
    assert _check(config, {"IN": Tensor.from_strings([], (0, 1))}) == 1


@pytest.mark.contract("V-10")
@pytest.mark.parametrize("datatype", VALID)
def test_a_tensor_without_elements_is_admitted(datatype: DataType) -> None:
    config = _config(_input(data_type=datatype))
    assert _check(config, {"IN": Tensor(datatype, (0,), b"")}) == 1


@pytest.mark.parametrize("datatype", [t for t in VALID if t is not DataType.BYTES])
def test_a_tensor_of_the_right_size_is_admitted(datatype: DataType) -> None:
    config = _config(_input("IN", 3, -1, data_type=datatype))
    assert _check(config, {"IN": Tensor(datatype, (3, 2), bytes(6 * datatype.itemsize))}) == 1


@pytest.mark.contract("V-12")
@given(st.lists(st.binary(max_size=4)))
def test_strings_of_any_content_are_admitted(elements: list[bytes]) -> None:
    config = _config(_input(data_type=DataType.BYTES))
    assert _check(config, {"IN": Tensor.from_strings(elements)}) == 1


@pytest.mark.contract("GP-13")
@pytest.mark.parametrize("outputs", [(), ("OUT",), ("OUT", "OUT")])
def test_outputs_that_the_model_has_may_be_asked_for(outputs: tuple[str, ...]) -> None:
    assert _check(_config(_input()), {"IN": _zeros(1)}, requested_outputs=outputs) == 1


@pytest.mark.contract("V-02")
def test_optional_inputs_may_be_left_out() -> None:
    config = _config(_input("A"), _input("B", optional=True))
    assert _check(config, {"A": _zeros(1)}) == 1
    assert _check(config, {"A": _zeros(1), "B": _zeros(2)}) == 1


# -- what is refused beside it -------------------------------------------------------------------


@pytest.mark.contract("V-01")
def test_a_refusal_names_the_request_by_its_id() -> None:
    text = _refusal(_config(_input("IN", 4)), {"IN": _zeros(5)}, id="r-7")
    assert text.startswith("[request id: r-7] unexpected shape for input 'IN'")


@pytest.mark.contract("V-02")
def test_too_few_inputs_are_refused_with_the_number_that_may_be_given() -> None:
    config = _config(_input("A"), _input("B"), _input("C", optional=True))
    assert _refusal(config, {"A": _zeros(1)}) == (
        "[request id: <id_unknown>] expected number of inputs between 2 and 3 but got 1 inputs"
        " for model 'm'. Got input(s) ['A'], but missing required input(s) ['B']."
        " Please provide all required input(s)."
    )


def test_an_optional_input_in_place_of_a_required_one_is_refused_by_its_name() -> None:
    config = _config(_input("A"), _input("B", optional=True))
    assert "unexpected inference input 'X'" in _refusal(config, {"X": _zeros(1)})


@pytest.mark.contract("V-05")
@pytest.mark.parametrize("other", [0, 1, 3])
def test_inputs_of_different_batch_sizes_are_refused(other: int) -> None:
    config = _config(_input("A"), _input("B"), max_batch_size=8)
    text = _refusal(config, {"A": _zeros(2, 1), "B": _zeros(other, 1)})
    assert text.endswith("input 'A' batch size does not match other inputs for 'm'")


@pytest.mark.parametrize(
    ("shape", "size", "why"),
    [
        ((1, -1), 4, "All input dimensions should be specified for input 'IN' for model 'm'"),
        ((-1, -1), 0, "All input dimensions should be specified for input 'IN' for model 'm'"),
        (
            (1, -4),
            16,
            "input byte size mismatch for input 'IN' for model 'm'. Expected -16, got 16",
        ),
        ((-1, 4), 16, "Expected 68719476720, got 16"),
        ((-4, 1), 16, "Expected 17179869168, got 16"),
        ((-1, 0), 0, "unexpected shape for input 'IN' for model 'm'. Expected [-1,-1], got [-1,0]"),
    ],
)
def test_negative_dimensions_are_refused_even_where_any_size_is_welcome(
    shape: tuple[int, ...], size: int, why: str
) -> None:
    """In the words of the real server, but for the last, which its model process refuses."""
    config = _config(_input(), max_batch_size=8)
    assert why in _refusal(config, {"IN": Tensor(DataType.INT32, shape, bytes(size))})


@pytest.mark.parametrize("shape", [(-1,), (-1, -1), (4, -1)])
def test_unspecified_dimensions_have_an_error_of_their_own(shape: tuple[int, ...]) -> None:
    config = _config(_input("IN", 4))
    why = "All input dimensions should be" if shape == (-1,) else "unexpected shape for input"
    assert why in _refusal(config, {"IN": Tensor(DataType.INT32, shape, bytes(16))})


def test_a_truncated_length_names_request_and_model() -> None:
    config = _config(_input(data_type=DataType.BYTES))
    assert _refusal(config, {"IN": Tensor(DataType.BYTES, (1,), b"\1\0\0\0ab")}) == (
        "[request id: <id_unknown>] incomplete string length indicator for inference input 'IN'"
        " for model 'm', expecting 4 bytes but only 1 bytes available. Please make sure the"
        " string length indicator is in one buffer."
    )


def test_inputs_are_looked_at_last_to_first() -> None:
    config = _config(_input("A", 1), _input("B", 1))
    assert "input 'B'" in _refusal(config, {"A": _zeros(2), "B": _zeros(2)})


def test_outputs_are_looked_at_before_inputs() -> None:
    text = _refusal(_config(_input()), {}, requested_outputs=("NOPE",))
    assert text == "unexpected inference output 'NOPE' for model 'm'"


def test_an_input_without_a_datatype_in_the_configuration_takes_nothing() -> None:
    text = _refusal(_config(_input(data_type=None)), {"IN": _zeros(1)})
    assert "expects '<invalid>'" in text


@pytest.mark.contract("V-09")
@given(st.binary(max_size=40), st.integers(0, 5))
def test_strings_are_admitted_exactly_when_they_are_whole_and_counted_right(
    buffer: bytes, expected: int
) -> None:
    config = _config(_input(data_type=DataType.BYTES))
    inputs = {"IN": Tensor(DataType.BYTES, (expected,), buffer)}
    assert _admits(config, inputs) == (_elements(buffer) == expected)


def _admits(config: ModelConfig, inputs: Mapping[str, Tensor]) -> bool:
    try:
        _check(config, inputs)
    except InvalidRequestError:
        return False
    return True


def _elements(buffer: bytes) -> int | None:
    """How many elements there are, in a second opinion; `None` when they are not whole."""
    count = 0
    while buffer:
        size = int.from_bytes(buffer[:4], "little")
        if len(buffer) < 4 + size:
            return None
        buffer = buffer[4 + size :]
        count += 1
    return count


# -- forms ----------------------------------------------------------------------------------------


def test_form_of_requests_is_checked_once_for_each_model() -> None:
    template = object()
    fitting = Admission(_config(_input("IN", 3), max_batch_size=8))
    strict = Admission(_config(_input("IN", 4), max_batch_size=8))
    for _ in range(2):
        request = InferenceRequest("m", inputs={"IN": _zeros(2, 3)}, template=template)
        assert fitting.check(request) == 2
        with pytest.raises(InvalidRequestError):
            strict.check(request)


@pytest.mark.contract("V-09")
@pytest.mark.parametrize("rest", [b"", b"\1\0\0\0c\1\0\0\0d", b"\xff\xff\xff\xff"])
def test_counting_strings_ends_with_the_first_too_many(rest: bytes) -> None:
    """As the real server was seen to count, whatever follows."""
    buffer = encode_elements([b"a"]) + (b"\1\0\0\0b" + rest if rest != b"\xff" * 4 else rest)
    config = _config(_input(data_type=DataType.BYTES))
    assert _refusal(config, {"IN": Tensor(DataType.BYTES, (1,), buffer)}) == (
        "[request id: <id_unknown>] unexpected number of string elements 2 for inference input 'IN'"
        " for model 'm', expecting 1"
    )


def test_strings_are_looked_at_whatever_the_form() -> None:
    admission = Admission(_config(_input(data_type=DataType.BYTES)))
    template = object()
    whole = InferenceRequest("m", inputs={"IN": Tensor.from_strings(["ab"])}, template=template)
    cut = Tensor(DataType.BYTES, (1,), b"\3\0\0\0ab")
    assert admission.check(whole) == 1
    with pytest.raises(InvalidRequestError, match="incomplete string data"):
        admission.check(InferenceRequest("m", inputs={"IN": cut}, template=template))


def test_refusals_do_not_repeat_a_long_text() -> None:
    config = _config(_input("IN", 4))
    long, right = "x" * 9000, _zeros(4)
    shape = Tensor(DataType.INT32, [10**12] * 1024, b"")
    assert len(_refusal(config, {"IN": shape})) < 1300
    assert len(_refusal(config, {"IN": _zeros(5)}, id=long)) < 1300
    assert len(_refusal(config, {long: right})) < 1300
    assert len(_refusal(config, {f"{long}{n}": right for n in range(9)})) < 1300
    assert len(_refusal(config, {"IN": right}, requested_outputs=(long,))) < 1300


# -- layouts of TensorRT --------------------------------------------------------------------------


@pytest.mark.contract("V-14", "C-11")
@pytest.mark.parametrize("shape", [(2,), (3,), (4, 2)], ids=["values", "batch size too", "rows"])
def test_values_of_a_shape_tensor_have_no_batch_dimension(shape: tuple[int, ...]) -> None:
    config = _config(_input("IN", 5), _input("S", 2, is_shape_tensor=True), max_batch_size=8)
    assert _check(config, {"IN": _zeros(4, 5), "S": _zeros(*shape)}) == 4
    assert _check(config, {"S": _zeros(*shape), "IN": _zeros(4, 5)}) == 4


@pytest.mark.contract("V-14")
def test_a_shape_tensor_of_another_length_is_refused() -> None:
    config = _config(_input("IN", 5), _input("S", 2, is_shape_tensor=True), max_batch_size=8)
    refused = _refusal(config, {"IN": _zeros(4, 5), "S": _zeros(4)})
    assert "unexpected shape for input 'S' for model 'm'. Expected [-1,2], got [4]" in refused
    assert "does not match other" in _refusal(config, {"IN": _zeros(4, 5), "S": _zeros(3, 2)})
    short = Tensor(DataType.INT32, (2,), bytes(4))
    assert "Expected 8, got 4" in _refusal(config, {"IN": _zeros(4, 5), "S": short})


@pytest.mark.contract("V-15", "C-14")
def test_bytes_of_a_non_linear_format_are_not_counted() -> None:
    config = _config(_input("IN", 3, 2, 2, is_non_linear_format_io=True), max_batch_size=8)
    padded = Tensor(DataType.INT32, (1, 3, 2, 2), bytes(4 * 4 * 2 * 2))
    assert _check(config, {"IN": padded}) == 1
    wrong = Tensor(DataType.INT32, (1, 4, 2, 2), bytes(4 * 4 * 2 * 2))
    assert "unexpected shape for input 'IN'" in _refusal(config, {"IN": wrong})
