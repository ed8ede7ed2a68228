"""`--trace-config`, its deprecated forms, and OpenTelemetry's environment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cli.reading import settings_of
from penstock.cli.arguments import UsageError, parse_arguments
from penstock.settings import OpenTelemetrySettings, TraceSettings
from penstock.tracing.settings import trace_texts

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


def trace_of(*configs: str, **environment: str) -> TraceSettings:
    options = [each if each.startswith("--") else f"--trace-config={each}" for each in configs]
    return settings_of(*options, environment=environment).trace


def mode_of(*configs: str, **environment: str) -> OpenTelemetrySettings:
    return trace_of("mode=opentelemetry", *configs, **environment).opentelemetry


def warnings_of(*arguments: str, **environment: str) -> list[str]:
    warnings: list[str] = []
    parse_arguments(["--model-store=r", *arguments], environment, warnings.append)
    return warnings


_RECORDED = json.loads((Path(__file__).parent / "recorded_trace_configs.json").read_text())
"""Command lines that the real server (2.51) was started with, and its settings or refusals."""

_STRICTER = (
    "opentelemetry,bsp_schedule_delay=1.5",
    "opentelemetry,bsp_max_export_batch_size=99999999999999",
    "opentelemetry,nope=1",
    "triton,nope=1",
    "triton,rate=5",
    "triton,level=TIMESTAMPS",
    "triton,log_frequency=5",
    "triton,mode=opentelemetry",
    "nope=1",
)
"""What the real server accepts and does not do, and is refused here by name."""


def _recorded(kind: str) -> list[Any]:
    """Those that are `accepted` by both, or `refused` by both, or `stricter` here.

    An empty variable is refused there; OpenTelemetry's specification has it mean unset.
    """
    found = []
    for case in _RECORDED:
        options = {line.removeprefix("--trace-config=") for line in case["arguments"]}
        here = "refused" if "refused" in case else "accepted"
        if options & {*_STRICTER}:
            here = "stricter"
        if here == kind and "" not in case["environment"].values():
            words = [*map("=".join, case["environment"].items()), *case["arguments"]]
            found.append(pytest.param(case, id=" ".join(words)))
    return found


def _parsed(case: dict[str, Any], warnings: list[str] | None = None) -> TraceSettings:
    told = [] if warnings is None else warnings
    arguments = ["--model-repository=r", *case["arguments"]]
    return parse_arguments(arguments, case["environment"], told.append).trace


@pytest.mark.contract("T-01", "T-02", "T-03", "T-04", "T-21", "CL-37")
@pytest.mark.parametrize("case", _recorded("accepted"))
def test_command_lines_come_to_what_they_do_in_the_real_server(case: dict[str, Any]) -> None:
    warnings: list[str] = []
    texts = trace_texts(_parsed(case, warnings))
    levels = {"trace_level": texts.pop("trace_level")}
    assert levels | {name: values[-1] for name, values in texts.items()} == case["settings"]
    assert warnings == case.get("warnings", [])


@pytest.mark.contract("T-20", "CL-37")
@pytest.mark.parametrize("case", _recorded("refused"))
def test_command_lines_are_refused_as_by_the_real_server(case: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        _parsed(case)
    assert str(refused.value) == case["refused"]


@pytest.mark.contract("CL-37")
@pytest.mark.parametrize("case", _recorded("stricter"))
def test_what_the_real_server_does_nothing_with_is_refused(case: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="trace-config"):
        _parsed(case)


@pytest.mark.contract("T-01", "T-02", "CL-37")
@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        ("rate=5", "rate", 5),
        ("rate=0", "rate", 0),
        ("rate=-1", "rate", 4294967295),
        ("count=-5", "count", -5),
        ("level=min", "levels", {"TIMESTAMPS"}),
        ("level=Tensors", "levels", {"TENSORS"}),
        ("level=off", "levels", set()),
        ("mode=OpenTelemetry", "mode", "opentelemetry"),
        ("triton,file=a=b,c", "file", "a=b,c"),
        ("Triton,file=t", "file", "t"),
        ("triton,log-frequency=7", "log_frequency", 7),
        ("triton,log-frequency=-1", "log_frequency", 4294967295),
    ],
)
def test_settings_are_read_as_the_real_server_does(config: str, field: str, value: Any) -> None:
    assert getattr(trace_of(config), field) == value


@pytest.mark.contract("T-01")
def test_levels_add_up_and_other_settings_keep_their_last_value() -> None:
    trace = trace_of("rate=5", "rate=6", "level=OFF", "level=TIMESTAMPS", "level=tensors")
    assert trace.rate == 6
    assert trace.levels == {"TIMESTAMPS", "TENSORS"}


@pytest.mark.contract("T-01", "T-02", "T-03")
def test_defaults_are_those_of_triton() -> None:
    assert trace_of() == TraceSettings(
        mode="triton", levels=frozenset(), rate=1000, count=-1, file="", log_frequency=0
    )
    assert mode_of() == OpenTelemetrySettings(
        url="",  # the environment's, else Triton's
        resource=(),
        bsp_max_queue_size=2048,
        bsp_schedule_delay=5000,
        bsp_max_export_batch_size=512,
    )


@pytest.mark.contract("T-03")
def test_settings_of_opentelemetry() -> None:
    mode = mode_of(
        "opentelemetry,url=localhost:4318/v1/traces",
        "opentelemetry,resource=service.name=mine",
        "opentelemetry,resource=c=d=e",
        "opentelemetry,bsp_max_queue_size=7",
        "opentelemetry,bsp_schedule_delay=8",
        "opentelemetry,bsp_max_export_batch_size=9",
        "opentelemetry,protocol=grpc",
        "opentelemetry,slow_threshold_ms=2.5",
        "opentelemetry,always_on_error=true",
        "opentelemetry,sampler=traceidratio",
        "opentelemetry,ratio=0.25",
    )
    assert mode == OpenTelemetrySettings(
        url="localhost:4318/v1/traces",
        resource=(("service.name", "mine"), ("c", "d=e")),
        bsp_max_queue_size=7,
        bsp_schedule_delay=8,
        bsp_max_export_batch_size=9,
        protocol="grpc",
        slow_threshold_ms=2.5,
        always_on_error=True,
        sampler="traceidratio",
        ratio=0.25,
    )


@pytest.mark.parametrize(
    ("config", "option", "problem"),
    [
        ("rate=99999999999", "trace-config rate", "Provided option value is out of bound. Got"),
        ("count=abc", "trace-config count", "Invalid option value. Got abc"),
        ("triton,log-frequency=x", "trace-config triton,log-frequency", "Invalid option value."),
        (
            "opentelemetry,bsp_max_queue_size=abc",
            "trace-config opentelemetry,bsp_max_queue_size",
            "Invalid option value. Got abc",
        ),
        ("opentelemetry,bsp_schedule_delay=0", "trace-config opentelemetry,", "out of bound"),
        ("opentelemetry,protocol=http/json", "trace-config opentelemetry,protocol", '"grpc"'),
        ("opentelemetry,sampler=some", "trace-config opentelemetry,sampler", '"always_on"'),
        ("opentelemetry,ratio=1.5", "trace-config opentelemetry,ratio", "range [0.0, 1.0]"),
        ("opentelemetry,slow_threshold_ms=-1", "trace-config opentelemetry,", "negative"),
        ("opentelemetry,always_on_error=x", "trace-config opentelemetry,", "bool option: x"),
        ("level=NOPE", "trace-config level", "invalid value for trace level option: nope"),
        (",file=x", "trace-config", "No trace mode specified. --trace-config option format is"),
        ("", "trace-config", "option format is '<trace mode>,<setting>=<value>'. Got "),
        ("rate=", "trace-config", "option format is '<trace mode>,<setting>=<value>'. Got rate="),
        ("triton,file", "trace-config", "'<trace mode>,<setting>=<value>'. Got triton,file"),
        ("level,x=1", "trace-config", "invalid value for trace mode option: level."),
        ("nope=1", "trace-config nope", "unknown trace setting 'nope'"),
        ("triton,log_freq=1", "trace-config triton,log_freq", "did you mean 'log-frequency'?"),
    ],
)
@pytest.mark.contract("CL-37")
def test_wrong_settings_are_refused_by_name(config: str, option: str, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        trace_of(config)
    first, second = str(refused.value).split("\n")
    assert first.startswith(f'Bad option: "--{option}')
    assert problem in second


@pytest.mark.contract("T-21", "CL-37")
def test_trace_config_wins_over_its_deprecated_forms() -> None:
    arguments = ["--trace-config=rate=6", "--trace-rate=5", "--trace-count=2"]
    trace = trace_of(*arguments)
    assert (trace.rate, trace.count) == (6, 2)
    assert warnings_of(*arguments)[-1] == (
        "Warning: Overriding deprecated '--trace-rate' in favor of provided rate value in "
        "--trace-config!"
    )


@pytest.mark.contract("T-21")
def test_deprecated_levels_add_to_those_of_trace_config() -> None:
    """The real server says that it overrides them, and adds them up."""
    trace = trace_of("--trace-level=TIMESTAMPS", "--trace-level=MAX", "level=TENSORS")
    assert trace.levels == {"TIMESTAMPS", "TENSORS"}
    assert trace_of("--trace-level=TENSORS", "level=OFF").levels == {"TENSORS"}


@pytest.mark.contract("T-21")
def test_deprecated_forms_alone() -> None:
    trace = trace_of("--trace-file=t", "--trace-rate=-1", "--trace-log-frequency=3")
    assert (trace.file, trace.rate, trace.log_frequency) == ("t", 4294967295, 3)


@pytest.mark.contract("T-04", "EV-08")
def test_the_batch_span_processor_is_configured_by_the_environment_too() -> None:
    environment = {
        "OTEL_BSP_MAX_QUEUE_SIZE": "11",
        "OTEL_BSP_SCHEDULE_DELAY": "12",
        "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "",
    }
    mode = mode_of("opentelemetry,bsp_max_queue_size=7", **environment)
    assert (mode.bsp_max_queue_size, mode.bsp_schedule_delay) == (7, 12)
    assert mode.bsp_max_export_batch_size == 512


@pytest.mark.contract("T-04")
def test_a_wrong_variable_is_refused_where_it_counts() -> None:
    assert trace_of(OTEL_BSP_MAX_QUEUE_SIZE="abc") == TraceSettings()
    with pytest.raises(UsageError) as refused:
        mode_of(OTEL_BSP_MAX_QUEUE_SIZE="abc")
    text = 'Bad option: "OTEL_BSP_MAX_QUEUE_SIZE".\nInvalid option value. Got abc'
    assert str(refused.value) == text


@pytest.mark.parametrize(
    "environment",
    [
        ENDPOINT,
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"},
        {"OTEL_TRACES_EXPORTER": "otlp"},
        {"OTEL_TRACES_EXPORTER": "none,otlp"},
        {**ENDPOINT, "OTEL_SDK_DISABLED": "false"},
    ],
)
def test_the_environment_alone_switches_opentelemetry_on(environment: dict[str, str]) -> None:
    trace = trace_of(**environment)
    assert (trace.mode, trace.rate) == ("opentelemetry", 1)
    assert trace.levels == {"TIMESTAMPS"}
    assert trace.opentelemetry.sampler == "parentbased_always_on"


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        {**ENDPOINT, "OTEL_SDK_DISABLED": "True"},
        {**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"},
        {**ENDPOINT, "OTEL_TRACES_EXPORTER": "console"},
    ],
)
def test_an_environment_that_does_not_ask_for_it(environment: dict[str, str]) -> None:
    assert trace_of(**environment) == TraceSettings()


@pytest.mark.parametrize("config", ["mode=triton", "triton,file=t", "--trace-log-frequency=1"])
def test_triton_mode_on_the_command_line_stays(config: str) -> None:
    assert trace_of(config, **ENDPOINT).mode == "triton"


def test_the_command_line_adjusts_what_the_environment_switched_on() -> None:
    trace = trace_of("rate=9", "count=3", "opentelemetry,bsp_schedule_delay=5", **ENDPOINT)
    assert (trace.mode, trace.rate, trace.count) == ("opentelemetry", 9, 3)
    assert trace.opentelemetry.bsp_schedule_delay == 5


@pytest.mark.parametrize(
    ("environment", "sampler", "ratio"),
    [
        ({}, "", 1.0),
        ({"OTEL_TRACES_SAMPLER": "always_on"}, "always_on", 1.0),
        (
            {"OTEL_TRACES_SAMPLER": "parentbased_traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.5"},
            "parentbased_traceidratio",
            0.5,
        ),
        ({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "x"}, None, 1.0),
        ({"OTEL_TRACES_SAMPLER": "jaeger_remote"}, "", 1.0),
        ({"OTEL_SDK_DISABLED": "true"}, "always_off", 1.0),
    ],
)
def test_the_sampler_of_the_environment(
    environment: dict[str, str], sampler: str | None, ratio: float
) -> None:
    mode = mode_of(**environment)
    assert mode.sampler == ("traceidratio" if sampler is None else sampler)
    assert mode.ratio == ratio


def test_a_ratio_alone_is_based_on_the_parent() -> None:
    assert mode_of("opentelemetry,ratio=0.1").sampler == "parentbased_traceidratio"
    mode = mode_of("opentelemetry,sampler=always_off", OTEL_TRACES_SAMPLER="always_on")
    assert mode.sampler == "always_off"


@pytest.mark.parametrize(
    ("environment", "protocol"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc"),
        (
            {
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            },
            "http/protobuf",
        ),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "http/protobuf"),
    ],
)
def test_the_protocol_of_the_environment(environment: dict[str, str], protocol: str) -> None:
    assert mode_of(**environment).protocol == protocol


@pytest.mark.parametrize(
    ("environment", "warning"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"}, "does not speak. Using 'http/protobuf'."),
        ({"OTEL_TRACES_SAMPLER": "jaeger_remote"}, "'jaeger_remote', which is not one of"),
        (
            {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"},
            "OTEL_TRACES_SAMPLER_ARG is ignored: a ratio is in range",
        ),
        ({"OTEL_TRACES_EXPORTER": "otlp,zipkin"}, "'zipkin', which is not an exporter"),
    ],
)
def test_what_the_environment_asks_for_in_vain_is_told(
    environment: dict[str, str], warning: str
) -> None:
    (line,) = warnings_of(**{**ENDPOINT, **environment})
    assert line.startswith("Warning: OTEL_")
    assert warning in line
