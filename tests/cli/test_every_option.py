"""No option and no environment variable is accepted in silence: each has a reader or a refusal."""

from __future__ import annotations

import ast
from dataclasses import is_dataclass
from typing import Any

import pytest

from cli.readers import FIELDS, REFUSED, modules, readers
from cli.reading import settings_of
from penstock import cli
from penstock.cli.arguments import UsageError
from penstock.cli.flags import FLAGS
from penstock.cli.usage import serve_usage
from penstock.settings import Settings
from penstock.settings.fields import default_value
from penstock.settings.without_effect import OF_GRPCIO, WITHOUT_EFFECT, without_effect


@pytest.mark.parametrize("path", FIELDS)
@pytest.mark.slow
def test_every_setting_has_a_reader_or_a_refusal(path: str) -> None:
    told = {row.field for row in WITHOUT_EFFECT}
    assert path in REFUSED | told or readers(path)


@pytest.mark.parametrize("field", sorted({flag.field for flag in FLAGS.values()} - {""}))
def test_every_option_sets_a_setting(field: str) -> None:
    assert field in FIELDS or is_dataclass(default_value(field))


@pytest.mark.slow
def test_options_without_effect_have_no_reader() -> None:
    """What is said to have no effect has no reader, and nothing is in both tables."""
    for row in WITHOUT_EFFECT:
        assert FLAGS[row.flag].field == row.field
        assert not readers(row.field)
        assert row.field not in REFUSED


SAMPLES = {
    "--http-thread-count": "4",
    "--grpc-infer-thread-count": "4",
    "--sagemaker-thread-count": "4",
    "--vertex-ai-thread-count": "4",
    "--grpc-infer-allocation-pool-size": "4",
    "--pinned-memory-pool-byte-size": "4",
    "--cuda-memory-pool-byte-size": "0:4",
    "--cuda-virtual-address-size": "0:4",
    "--buffer-manager-thread-count": "4",
    "--enable-peer-access": "false",
}


@pytest.mark.parametrize("flag", [row.flag for row in WITHOUT_EFFECT])
def test_an_option_without_effect_is_told(flag: str) -> None:
    assert not list(without_effect(settings_of()))
    (line,) = without_effect(settings_of(f"--{flag}={SAMPLES[f'--{flag}']}"))
    assert line.startswith(f"--{flag} has no effect: ")


def test_an_option_of_the_other_transport_is_told() -> None:
    flag = "--grpc-http2-max-pings-without-data=5"
    (line,) = without_effect(settings_of(flag))
    assert line.startswith("--grpc-http2-max-pings-without-data has no effect: ")
    assert not list(without_effect(settings_of(flag, "--grpc-transport=grpcio")))


@pytest.mark.parametrize("path", [path for path in FIELDS if path.startswith("grpc.")])
def test_both_transports_read_an_option_of_grpc(path: str) -> None:
    """Or the server does, for both; what only one reads is told in the log."""
    transports = {place.split("/")[1] for place in readers(path) if place.startswith("rpc/")}
    assert transports != {"native"}
    if transports == {"grpcio"}:
        assert path == OF_GRPCIO.field


def test_help_tells_which_options_have_no_effect() -> None:
    text = " ".join(serve_usage("tritonserver").split())
    assert text.count("Has no effect here: ") == len(WITHOUT_EFFECT)


READ_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "TRITONCACHE_REDIS_PASSWORD",
    "TRITONCACHE_REDIS_USERNAME",
    "TRITONSERVER_BACKLOG_DELAY_SCHEDULER",
    "TRITONSERVER_DELAY_SCHEDULER",
    "TRITON_PARALLEL_INSTANCE_LOADING",
    "PENSTOCK_CACHE",
)
COMMAND_LINE_VARIABLES = {
    "TRITON_SERVER_CPU_ONLY": ("1", "devices.cpu_only"),
    "TRITON_SERVER_ESCAPE_LOG_MESSAGES": ("0", "logging.escape"),
    "AIP_STORAGE_URI": ("folder", "repository.paths"),
    "AIP_HTTP_PORT": ("9000", "vertex.port"),
    "AIP_MODE": ("PREDICTION", "vertex.enabled"),
    "OTEL_EXPORTER_OTLP_ENDPOINT": ("http://collector:4318", "trace.mode"),
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": ("http://collector:4318/v1/traces", "trace.levels"),
    "OTEL_TRACES_EXPORTER": ("otlp", "trace.opentelemetry.sampler"),
}


@pytest.mark.contract("EV-02", "EV-07", "EV-11", "EV-12")
@pytest.mark.parametrize("name", READ_VARIABLES)
def test_an_environment_variable_is_read(name: str) -> None:
    constants = (node for tree in modules().values() for node in ast.walk(tree))
    assert any(isinstance(node, ast.Constant) and node.value == name for node in constants)


@pytest.mark.contract("EV-01", "EV-03", "EV-08", "EV-09", "CL-33", "CL-52")
@pytest.mark.parametrize("name", COMMAND_LINE_VARIABLES)
def test_an_environment_variable_sets_a_setting(name: str) -> None:
    value, path = COMMAND_LINE_VARIABLES[name]
    before, after = settings_of(), settings_of(environment={name: value})
    if name == "AIP_STORAGE_URI":  # the command line overrides it
        after = cli.arguments.parse_arguments([], {name: value}, lambda _: None)
    assert _value(before, path) != _value(after, path)


def _value(settings: Settings, path: str) -> Any:
    for name in path.split("."):
        settings = getattr(settings, name)
    return settings


@pytest.mark.contract("CL-35")
def test_a_negative_interval_of_metrics_is_refused() -> None:
    assert settings_of("--metrics-interval-ms=0.5").metrics.interval_ms == 0.5
    with pytest.raises(UsageError, match="--metrics-interval-ms"):
        settings_of("--metrics-interval-ms=-1")
