"""Text and other arguments of models, as Triton's module takes and refuses them."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.python.scripted import FakeCall, FakeReply, FakeRuntime
from penstock.core.request import InferenceRequest as CoreRequest
from penstock.metrics.exposition import MetricKind, render
from penstock_backends.python.pb_utils import api
from penstock_backends.python.pb_utils.arguments import UINT32, integer, message, real, text, truth
from penstock_backends.python.pb_utils.control import is_model_ready, load_model, unload_model
from penstock_backends.python.pb_utils.exception import TritonModelException
from penstock_backends.python.pb_utils.logger import Logger
from penstock_backends.python.pb_utils.metrics import MetricFamily
from penstock_backends.python.pb_utils.request import InferenceRequest
from penstock_backends.python.pb_utils.responses import (
    TRITONSERVER_MEMORY_CPU,
    InferenceResponse,
    PreferredMemory,
    TritonError,
)
from penstock_backends.python.pb_utils.sender import InferenceResponseSender
from penstock_backends.python.pb_utils.tensor import Tensor

X = Tensor("X", np.zeros(1, np.float32))
ONE = np.zeros(1, np.float32)


class Name(str, Enum):  # noqa: UP042 (its `str()` is another text)
    """A text whose `str()` is not the text."""

    M = "m"


FORMS = ["m", np.str_("m"), b"m", np.bytes_(b"m"), bytearray(b"m"), Name.M]
"""The same text in each form that Triton takes."""

NO_TEXT = [None, 5, ["m"], np.array("m"), memoryview(b"m"), ValueError("m")]


def asking(**fields: Any) -> InferenceRequest:
    given: dict[str, Any] = {"model_name": "m", "requested_output_names": ["Y"], "inputs": [X]}
    return InferenceRequest(**{**given, **fields})


# -- text ----------------------------------------------------------------------------------------

TEXTS: list[Callable[[Any], Any]] = [
    lambda t: asking(model_name=t).model_name(),
    lambda t: asking(request_id=t).request_id(),
    lambda t: asking(requested_output_names=[t]).requested_output_names().pop(),
    lambda t: Tensor(t, ONE).name(),
    lambda t: Tensor.from_dlpack(t, ONE).name(),
    lambda t: TritonError(t).message(),
]


@pytest.mark.contract("PY-12", "PY-19", "PY-21")
@pytest.mark.parametrize("use", TEXTS)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
def test_text_may_have_any_form_and_travels_as_str(use: Callable[[Any], Any], form: Any) -> None:
    found = use(form)
    assert (type(found), found) == (str, "m")


@pytest.mark.contract("PY-12", "PY-19", "PY-21")
@pytest.mark.parametrize("use", TEXTS)
@pytest.mark.parametrize("value", NO_TEXT, ids=lambda value: type(value).__name__)
def test_what_is_no_text_is_refused(use: Callable[[Any], Any], value: Any) -> None:
    with pytest.raises(TypeError, match=r"is not text \(str or bytes\), but"):
        use(value)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_is_the_same_in_all_forms(value: str) -> None:
    forms = [value, np.str_(value), value.encode(), bytearray(value.encode())]
    assert {text(form, "name") for form in forms} == {value}


@pytest.mark.parametrize("value", [b"\xff", "\udcff", np.bytes_(b"a\xff")])
def test_name_that_is_not_utf8_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="'model_name' is not UTF-8"):
        asking(model_name=value)


@pytest.mark.parametrize("value", [b"no \xff", "no \udcff"])
def test_message_that_is_not_utf8_is_escaped(value: Any) -> None:
    assert message(value, "message").startswith("no \\")


@pytest.mark.contract("PY-32")
@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
def test_model_control_takes_names_in_any_form(process: FakeRuntime, form: Any) -> None:
    process.answer = True
    assert is_model_ready(form, form)
    load_model(form, form, {} if isinstance(form, bytearray) else {form: b"x"})
    unload_model(form)
    (_, *asked), (_, *loaded, files), unloaded = process.controls
    assert [asked, loaded, unloaded] == [["m", "m"], ["m", "m"], ("unload", "m", False)]
    assert {type(name) for name in (*asked, *loaded, unloaded[1], *files)} == {str}


@pytest.mark.contract("PY-32")
@pytest.mark.parametrize("use", [is_model_ready, load_model, unload_model])
@pytest.mark.parametrize("value", [None, 5, ["m"]])
def test_model_control_refuses_what_is_no_text(
    process: FakeRuntime, use: Callable[[Any], Any], value: Any
) -> None:
    with pytest.raises(TypeError, match="'model_name' is not text"):
        use(value)
    assert process.controls == []


@pytest.mark.contract("PY-32")
@pytest.mark.parametrize(
    "wrong",
    [
        lambda: is_model_ready("m", 1),  # type: ignore[arg-type]
        lambda: is_model_ready("m", None),  # type: ignore[arg-type]
        lambda: load_model("m", {}),  # type: ignore[arg-type]
        lambda: load_model("m", "{}", {1: b""}),  # type: ignore[arg-type]
        lambda: unload_model("m", "yes"),  # type: ignore[arg-type]
        lambda: unload_model("m", None),  # type: ignore[arg-type]
    ],
)
def test_model_control_refuses_wrong_types(
    process: FakeRuntime, wrong: Callable[[], object]
) -> None:
    with pytest.raises(TypeError, match="is not"):
        wrong()
    assert process.controls == []


@pytest.mark.contract("PY-30")
@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
def test_tensors_are_found_by_names_in_any_form(form: Any) -> None:
    tensor = Tensor("m", ONE)
    assert api.get_output_tensor_by_name(InferenceResponse([tensor]), form) is tensor
    assert api.get_input_tensor_by_name(asking(inputs=[tensor]), form) is tensor
    config = {"input": [{"name": "m"}], "output": [{"name": "m"}]}
    assert api.get_input_config_by_name(config, form) == {"name": "m"}
    assert api.get_output_config_by_name(config, form) == {"name": "m"}


def test_nothing_is_found_without_a_name() -> None:
    nameless: Any = None
    assert api.get_input_tensor_by_name(asking(), nameless) is None


@pytest.mark.parametrize("form", FORMS, ids=lambda form: type(form).__name__)
def test_log_line_may_have_any_form(process: FakeRuntime, form: Any) -> None:
    Logger.log_warn(form)
    assert [said for _, said, *_ in process.logged] == ["m"]


@pytest.mark.contract("PY-33")
@pytest.mark.parametrize("value", NO_TEXT, ids=lambda value: type(value).__name__)
def test_log_line_is_text(process: FakeRuntime, value: Any) -> None:
    with pytest.raises(TypeError, match="'message' is not text"):
        Logger.log_error(value)
    with pytest.raises(TypeError, match="'message' is not text"):
        Logger.log(value)


@pytest.mark.contract("PY-33")
@pytest.mark.parametrize("level", [1, None, "ERROR", True])
def test_log_level_is_of_its_class(process: FakeRuntime, level: Any) -> None:
    with pytest.raises(TypeError, match="'level' is not of class LogLevel"):
        Logger.log("m", level)


@pytest.mark.contract("PY-34")
def test_family_of_metrics_may_be_named_in_bytes(process: FakeRuntime) -> None:
    number: Any = np.float32(2)
    family = MetricFamily(b"requests", np.str_("how many"), MetricKind.COUNTER)
    family.Metric({b"model": np.bytes_(b"m")}).increment(number)
    assert 'requests{model="m"} 2' in render(process.metrics.snapshot())


@pytest.mark.contract("PY-34")
@pytest.mark.parametrize(
    "wrong",
    [
        lambda: MetricFamily(None, "", MetricKind.COUNTER),  # type: ignore[arg-type]
        lambda: MetricFamily("f", 1, MetricKind.COUNTER),  # type: ignore[arg-type]
        lambda: MetricFamily("f", "", 1),  # type: ignore[arg-type]
        lambda: MetricFamily("f", "", MetricKind.GAUGE).Metric({"a": 1}),  # type: ignore[arg-type]
        lambda: MetricFamily("f", "", MetricKind.GAUGE).Metric().set("1"),  # type: ignore[arg-type]
    ],
)
def test_wrong_types_of_metrics_are_refused(
    process: FakeRuntime, wrong: Callable[[], object]
) -> None:
    with pytest.raises(TypeError, match="is not"):
        wrong()


# -- requests, responses, senders ----------------------------------------------------------------


@pytest.mark.contract("PY-12")
@pytest.mark.parametrize(
    "wrong",
    [
        {"requested_output_names": "Y"},
        {"requested_output_names": b"Y"},
        {"requested_output_names": {"Y"}},
        {"requested_output_names": {"Y": 1}},
        {"requested_output_names": iter(["Y"])},
        {"requested_output_names": None},
        {"requested_output_names": [None]},
        {"inputs": None},
        {"inputs": X},
        {"inputs": {X}},
        {"inputs": iter([X])},
        {"inputs": ["X"]},
        {"correlation_id": None},
        {"correlation_id": -1},
        {"model_version": None},
        {"model_version": "1"},
        {"model_version": 1.0},
        {"flags": None},
        {"flags": 1.0},
        {"flags": -1},
        {"flags": 1 << 32},
        {"timeout": None},
        {"timeout": 1.5},
        {"timeout": "1"},
        {"timeout": np.float64(2)},
        {"timeout": -1},
        {"preferred_memory": 1},
        {"trace": 1},
        {"parameters": "{}"},
    ],
    ids=lambda wrong: re.sub(" at 0x[0-9a-f]+", "", str(wrong)),
)
def test_wrong_types_of_a_request_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"is not|expected a Tensor"):
        asking(**wrong)


@pytest.mark.contract("PY-12")
@pytest.mark.parametrize("missing", ["model_name", "requested_output_names", "inputs"])
def test_request_needs_model_outputs_and_inputs(missing: str) -> None:
    given: dict[str, Any] = {"model_name": "m", "requested_output_names": ["Y"], "inputs": [X]}
    del given[missing]
    with pytest.raises(TypeError, match=f"'{missing}' is not"):
        InferenceRequest(**given)


@pytest.mark.contract("PY-12")
@pytest.mark.parametrize("outputs", [("Y", b"Z"), np.array(["Y", "Z"])], ids=["tuple", "array"])
def test_integers_of_numpy_tuples_and_arrays_will_do(outputs: Any) -> None:
    request = asking(
        requested_output_names=outputs,
        inputs=(X,),
        timeout=np.int64(7),
        flags=np.uint8(1),
        model_version=np.int32(2),
        correlation_id=np.str_("c"),
        preferred_memory=PreferredMemory(TRITONSERVER_MEMORY_CPU, 0),
        parameters={np.str_("k"): np.str_("v")},
    )
    assert (request.timeout(), request.flags(), request.model_version()) == (7, 1, 2)
    assert request.core.requested_outputs == ("Y", "Z")
    assert type(request.correlation_id()) is str
    assert [type(t) for pair in request.core.parameters.items() for t in pair] == [str, str]


@pytest.mark.parametrize("decoupled", [None, "yes", []])
def test_decoupled_is_a_bool(process: FakeRuntime, decoupled: Any) -> None:
    with pytest.raises(TypeError, match="'decoupled' is not a bool"):
        asking().exec(decoupled=decoupled)
    assert process.calls == []


def test_numpys_bool_will_do(process: FakeRuntime) -> None:
    process.next_call = FakeCall(InferenceResponse([]))
    truth: Any = np.bool_(True)
    asking().exec(decoupled=truth)
    ((_, decoupled),) = process.calls
    assert decoupled is True


@pytest.mark.parametrize("flags", [None, 1.0, "1", -1])
def test_flags_are_integers(flags: Any) -> None:
    received = InferenceRequest.received(CoreRequest("m"), FakeReply(iterative=True))
    for use in (received.set_flags, received.set_release_flags):
        with pytest.raises(TypeError, match="'flags' is not"):
            use(flags)
    with pytest.raises(TypeError, match="'flags' is not"):
        InferenceResponseSender(FakeReply()).send(InferenceResponse([]), flags)


@pytest.mark.contract("PY-24")
@pytest.mark.parametrize("response", ["text", [InferenceResponse([])], TritonError("e")])
def test_sender_sends_responses_only(response: Any) -> None:
    with pytest.raises(TypeError, match="'response' is not of class InferenceResponse"):
        InferenceResponseSender(FakeReply()).send(response)


@pytest.mark.contract("PY-18", "PY-19")
@pytest.mark.parametrize(
    "wrong",
    [
        lambda: InferenceResponse(None),  # type: ignore[arg-type]
        lambda: InferenceResponse(X),  # type: ignore[arg-type]
        lambda: InferenceResponse({X}),  # type: ignore[arg-type]
        lambda: InferenceResponse([], error="boom"),  # type: ignore[arg-type]
        lambda: InferenceResponse([], error=ValueError("boom")),  # type: ignore[arg-type]
        lambda: TritonError("m", 2),  # type: ignore[arg-type]
        lambda: TritonError("m", None),  # type: ignore[arg-type]
        lambda: PreferredMemory(1),  # type: ignore[arg-type]
        lambda: PreferredMemory(TRITONSERVER_MEMORY_CPU, 1.0),  # type: ignore[arg-type]
    ],
)
def test_wrong_types_of_a_response_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="is not"):
        wrong()


@pytest.mark.contract("PY-21")
def test_tensor_needs_a_name() -> None:
    with pytest.raises(TritonModelException, match="Tensor name cannot be an empty string"):
        Tensor(b"", ONE)


# -- numbers -------------------------------------------------------------------------------------


@given(st.integers(-10, (1 << 32) + 10))
def test_integer_is_within_its_range_or_refused(value: int) -> None:
    if value in UINT32:
        assert integer(value, "flags", UINT32) == value
        return
    with pytest.raises(TypeError, match=r"'flags' is not within 0 to 4294967295"):
        integer(value, "flags", UINT32)


def test_numbers_of_numpy_become_those_of_python() -> None:
    found = integer(np.int16(3), "n", UINT32), real(np.float32(0.5), "x"), truth(np.bool_(1), "b")
    assert [type(number) for number in found] == [int, float, bool]
