"""Trace settings: what clients may write, and which setting counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.core.errors import InferenceError, InvalidRequestError, UnsupportedError
from penstock.core.timeline import Trace
from penstock.settings import OpenTelemetrySettings, TraceSettings
from penstock.tracing.sampling import Sampling
from penstock.tracing.settings import TraceControl, trace_texts
from penstock.tracing.tracer import Tracer

pytestmark = pytest.mark.contract("X-13", "X-14", "T-19")


@pytest.fixture
def control() -> TraceControl:
    return TraceControl(TraceSettings(file="trace.json"), tensors=True)


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
        (TraceSettings(file="f", count=0), ""),
        (TraceSettings(mode="opentelemetry", rate=0), "sample rate must be non-zero"),
        (TraceSettings(mode="opentelemetry", count=0), ""),
    ],
)
def test_tracing_that_could_not_be_done_is_refused(start: TraceSettings, reason: str) -> None:
    with pytest.raises(
        InferenceError, match=f"^Attempting to set invalid trace setting :{reason}$"
    ):
        TraceControl(start).change({"trace_level": ["TIMESTAMPS"]})


@pytest.mark.contract("T-19")
@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        (OpenTelemetrySettings(), {}),
        (
            OpenTelemetrySettings(
                url="http://c:4318/v1/traces",
                resource=(("a", "b"), ("c", "d=e")),
                bsp_max_queue_size=7,
                protocol="grpc",
                sampler="traceidratio",
                ratio=0.25,
                slow_threshold_ms=1.5,
                always_on_error=True,
            ),
            {
                "url": ["http://c:4318/v1/traces"],
                "resource": ["a=b", "c=d=e"],
                "bsp_max_queue_size": ["7"],
                "protocol": ["grpc"],
                "sampler": ["traceidratio"],
                "ratio": ["0.25"],
                "slow_threshold_ms": ["1.5"],
                "always_on_error": ["true"],
            },
        ),
    ],
)
def test_the_view_of_the_opentelemetry_mode(
    settings: OpenTelemetrySettings, shown: dict[str, list[str]]
) -> None:
    assert (
        trace_texts(TraceSettings(mode="opentelemetry", opentelemetry=settings))
        == {
            "trace_level": ["OFF"],
            "trace_rate": ["1000"],
            "trace_count": ["-1"],
            "trace_mode": ["opentelemetry"],
            "bsp_max_export_batch_size": ["512"],
            "bsp_schedule_delay": ["5000"],
            "bsp_max_queue_size": ["2048"],
        }
        | shown
    )


@pytest.mark.contract("T-19")
def test_the_mode_and_its_own_settings_stay_as_they_were_at_the_start() -> None:
    start = TraceSettings(mode="opentelemetry")
    control = TraceControl(start)
    control.change({"trace_mode": ["triton"], "url": ["x"], "bsp_max_queue_size": ["1"]})
    assert control.current() == start


_RECORDED = json.loads((Path(__file__).parent / "recorded_settings.json").read_text())
"""Changes that were asked of the real server (2.51) one after the other, and its answers."""

_STARTS = {
    "triton": TraceSettings(file="t.json"),
    "opentelemetry": TraceSettings(
        mode="opentelemetry",
        levels=frozenset({"TIMESTAMPS"}),
        rate=0,
        opentelemetry=OpenTelemetrySettings(
            url="http://collector:4318/v1/traces",
            bsp_schedule_delay=200,
            resource=(("a", "b"), ("c", "d")),
        ),
    ),
}


@pytest.mark.contract("T-05", "T-19", "T-20", "G-20", "X-13")
@pytest.mark.parametrize("mode", _STARTS)
def test_changes_have_the_answers_of_the_real_server(mode: str) -> None:
    control = TraceControl(_STARTS[mode], tensors=True)
    for number, step in enumerate(_RECORDED[mode]):
        answer = {"model": step["model"], "change": step["change"]}
        try:
            if step["change"]:
                control.change(step["change"], step["model"])
            answer["settings"] = trace_texts(control.current(step["model"]))
        except InferenceError as error:
            answer["refused"] = error.message
        assert (number, answer) == (number, step)


def counted(control: TraceControl, model: str, requests: int) -> list[bool]:
    return [control.sample(model) is not None for _ in range(requests)]


@pytest.fixture
def tracing() -> TraceControl:
    return TraceControl(TraceSettings(file="f", rate=3, levels=frozenset({"TIMESTAMPS"})))


@pytest.mark.contract("T-06")
def test_models_without_settings_of_their_own_are_counted_together(tracing: TraceControl) -> None:
    assert counted(tracing, "a", 2) == [False, False]
    assert counted(tracing, "b", 1) == [True]
    tracing.change({"trace_rate": ["2"]}, "a")
    assert counted(tracing, "b", 2) == [False, False]
    assert counted(tracing, "a", 2) == [False, True]
    assert counted(tracing, "b", 1) == [True]


@pytest.mark.contract("T-06")
@pytest.mark.parametrize("change", [{"trace_rate": ["3"]}, {"log_frequency": []}, {"x": ["y"]}])
def test_any_change_begins_counting_again(
    tracing: TraceControl, change: dict[str, list[str]]
) -> None:
    counted(tracing, "a", 2)
    tracing.change(change)
    assert counted(tracing, "a", 3) == [False, False, True]


@pytest.mark.contract("T-06", "T-19")
def test_a_change_for_all_begins_counting_again_where_a_model_follows_it(
    tracing: TraceControl,
) -> None:
    tracing.change({"trace_rate": ["2"]}, "a")
    counted(tracing, "a", 1)
    tracing.change({"trace_rate": ["5"]})
    assert counted(tracing, "a", 2) == [False, True]


@pytest.mark.contract("T-06")
def test_the_count_runs_down_and_is_shown(tracing: TraceControl) -> None:
    tracing.change({"trace_rate": ["1"], "trace_count": ["3"]})
    assert counted(tracing, "b", 1) == [True]
    tracing.change({"trace_rate": ["1"]}, "a")
    assert counted(tracing, "a", 3) == [True, True, False]
    assert counted(tracing, "b", 3) == [True, True, False]
    assert trace_texts(tracing.current("a"))["trace_count"] == ["0"]
    with pytest.raises(InvalidRequestError, match=r"invalid trace setting :$"):
        tracing.change({"log_frequency": ["1"]})
    tracing.change({"trace_count": ["1"]})
    assert counted(tracing, "b", 2) == [True, False]
    assert tracing.active  # for the model's part, which follows the new count


@pytest.mark.contract("T-19")
def test_a_model_that_cannot_follow_a_change_keeps_what_it_had(tracing: TraceControl) -> None:
    """The change of all models stands nevertheless, as in the real server."""
    tracing.change({"trace_level": ["OFF"]})
    tracing.change({"trace_level": ["TIMESTAMPS"]}, "a")
    with pytest.raises(InvalidRequestError, match="sample rate must be non-zero"):
        tracing.change({"trace_rate": ["0"]})
    assert (tracing.current().rate, tracing.current("a").rate) == (0, 3)
    tracing.change({"trace_rate": ["4"]})
    assert tracing.current("a").rate == 4


@pytest.mark.parametrize(
    ("changes", "active"),
    [
        ([], True),
        ([("", ["OFF"])], False),
        ([("", ["OFF"]), ("a", ["TIMESTAMPS"])], True),
        ([("", ["OFF"]), ("a", ["TIMESTAMPS"]), ("a", [])], False),
    ],
)
def test_whether_anything_may_be_traced_follows_changes(
    tracing: TraceControl, changes: list[tuple[str, list[str]]], active: bool
) -> None:
    for model, levels in changes:
        tracing.change({"trace_level": levels}, model)
    assert tracing.active is active


def test_who_asks_is_told_which_settings_were_replaced(tracing: TraceControl) -> None:
    replaced: list[Sampling] = []
    tracing.on_replaced(replaced.append)
    tracing.change({"trace_rate": ["1"]}, "a")
    tracing.change({"trace_rate": ["2"]})
    assert [each.settings.rate for each in replaced] == [3, 1]
    tracing.change({"trace_rate": []}, "a")
    assert len(replaced) == 3


@pytest.mark.contract("T-05")
def test_tensors_in_the_opentelemetry_mode_are_told_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    control = TraceControl(TraceSettings(mode="opentelemetry"), tensors=True)
    control.change({"trace_level": ["TENSORS"]})
    text = "Tensor level tracing is not supported by the mode: opentelemetry"
    assert caplog.messages == [text]


def test_a_level_without_a_file_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    control = TraceControl(TraceSettings(levels=frozenset({"TIMESTAMPS"})))
    assert not control.active
    assert "--trace-config triton,file=<path>" in caplog.text


class Kept:
    """A sink."""

    def __init__(self) -> None:
        self.traces: list[Trace] = []

    def submit(self, trace: Trace) -> None:
        self.traces.append(trace)


def test_a_tracer_hands_on_what_is_sampled_and_what_its_end_keeps() -> None:
    settings = OpenTelemetrySettings(always_on_error=True)
    control = TraceControl(
        TraceSettings(
            mode="opentelemetry",
            rate=2,
            levels=frozenset({"TIMESTAMPS"}),
            opentelemetry=settings,
        )
    )
    sink = Kept()
    tracer = Tracer(control, [sink], propagates=True)
    roots = [tracer.begin("a", {}, 1) for _ in range(3)]
    endings = [None, None, InferenceError("failed")]
    for root, error in zip(roots, endings, strict=True):
        assert root is not None
        root.finish(error)
    assert [trace.root for trace in sink.traces] == roots[1:]
    assert [trace.propagated for trace in sink.traces] == [True, False]


@pytest.mark.parametrize("levels", [["TENSORS"], ["TIMESTAMPS", "TENSORS"]])
def test_clients_cannot_have_tensors_traced(levels: list[str]) -> None:
    control = TraceControl(TraceSettings(file="trace.json"))
    with pytest.raises(UnsupportedError, match="--trace-config=level=TENSORS"):
        control.change({"trace_level": levels, "trace_rate": ["1"]})
    assert control.current() == control.start


def test_tensors_of_the_start_can_be_switched_off_and_on() -> None:
    control = TraceControl(TraceSettings(file="trace.json", levels=frozenset({"TENSORS"})))
    control.change({"trace_level": ["OFF"]})
    control.change({"trace_level": ["TENSORS"]}, "model")
    assert trace_texts(control.current("model"))["trace_level"] == ["TENSORS"]


def test_without_settings_the_defaults_are_in_force() -> None:
    control = TraceControl()
    assert control.current() == control.current("m") == control.start == TraceSettings()
    assert not control.active
