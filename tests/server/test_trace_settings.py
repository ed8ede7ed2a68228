"""Trace settings: what clients may write, and which setting counts."""

from __future__ import annotations

import pytest

from penstock.core.errors import InferenceError, InvalidRequestError, UnsupportedError
from penstock.server.trace_settings import TraceControl, trace_texts
from penstock.settings import TraceSettings

pytestmark = pytest.mark.contract("X-13", "X-14", "T-19")


@pytest.fixture
def control() -> TraceControl:
    return TraceControl(TraceSettings(file="trace.json"))


def test_settings_are_views_of_text(control: TraceControl) -> None:
    assert trace_texts(control.current()) == {
        "trace_level": ["OFF"],
        "trace_rate": ["1000"],
        "trace_count": ["-1"],
        "log_frequency": ["0"],
        "trace_file": ["trace.json"],
        "trace_mode": ["triton"],
    }


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("trace_rate", " 7", "7"),
        ("trace_rate", "5x", "5"),
        ("trace_rate", "+3", "3"),
        ("trace_rate", "-1", "4294967295"),
        ("trace_count", "-1", "-1"),
        ("trace_count", "0", "0"),
        ("log_frequency", "-1", "4294967295"),
    ],
)
def test_numbers_are_read_as_the_real_server_does(
    control: TraceControl, name: str, text: str, shown: str
) -> None:
    control.change({name: [text]})
    assert trace_texts(control.current())[name] == [shown]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"trace_rate": ["x"]}, "Unable to parse 'trace_rate', got: x"),
        ({"trace_rate": [""]}, "Unable to parse 'trace_rate', got: "),
        (
            {"trace_rate": ["2147483648"]},
            "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ],"
            " got: 2147483648",
        ),
        (
            {"trace_count": ["9" * 20]},
            "Unable to parse 'trace_count', value is out of range [ -1, 2147483647 ],"
            f" got: {'9' * 20}",
        ),
        ({"trace_count": ["-2"]}, "Unable to parse 'trace_count'. Expecting value >= -1, got: -2"),
        ({"trace_rate": ["1", "2"]}, "expect only 1 value for 'trace_rate'"),
        ({"trace_level": ["TENSORS", "OFF"]}, "Expect only one trace level 'OFF' is specified"),
    ],
)
def test_values_that_make_no_sense_change_nothing(
    control: TraceControl, changes: dict[str, list[str]], text: str
) -> None:
    with pytest.raises(InvalidRequestError) as refused:
        control.change({"trace_rate": ["5"], **changes})
    assert refused.value.message == text
    assert control.current() == control.start


def test_the_file_cannot_be_changed(control: TraceControl) -> None:
    with pytest.raises(UnsupportedError, match="trace file location can not be updated"):
        control.change({"trace_file": []})


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["TENSORS", "TIMESTAMPS"], ["TIMESTAMPS", "TENSORS"]),
        (["TIMESTAMPS", "NOPE"], ["TIMESTAMPS"]),
        (["MAX"], ["TIMESTAMPS"]),
        (["OFF"], ["OFF"]),
        ([], ["OFF"]),
    ],
)
def test_levels(control: TraceControl, given: list[str], shown: list[str]) -> None:
    control.change({"trace_level": given})
    assert trace_texts(control.current())["trace_level"] == shown


def test_only_unknown_levels_change_nothing(control: TraceControl) -> None:
    control.change({"trace_level": ["TENSORS"]})
    control.change({"trace_level": ["off"]})
    assert trace_texts(control.current())["trace_level"] == ["TENSORS"]


def test_a_model_keeps_its_own_setting_until_it_is_cleared(control: TraceControl) -> None:
    control.change({"trace_rate": ["12"]}, "simple")
    control.change({"trace_rate": ["13"]})
    assert control.current("simple").rate == 12
    assert control.current("other").rate == 13
    control.change({"trace_rate": []}, "simple")
    assert control.current("simple").rate == 13


def test_clearing_for_all_goes_back_to_the_start(control: TraceControl) -> None:
    control.change({"trace_rate": ["5"], "unknown": ["x"]})
    control.change({"trace_rate": []})
    assert control.current() == control.start


@pytest.mark.contract("T-20")
@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (TraceSettings(), "trace file name is not given"),
        (TraceSettings(file="f", rate=0), "sample rate must be non-zero"),
        (TraceSettings(rate=0), "sample rate must be non-zero"),
    ],
)
def test_tracing_that_could_not_be_done_is_refused(start: TraceSettings, reason: str) -> None:
    with pytest.raises(
        InferenceError, match=f"^Attempting to set invalid trace setting :{reason}$"
    ):
        TraceControl(start).change({"trace_level": ["TIMESTAMPS"]})
