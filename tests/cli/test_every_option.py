"""No option and no environment variable is accepted in silence: each has a reader or a refusal."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import penstock
import penstock_backends
from cli.reading import settings_of
from penstock import cli
from penstock.app.preflight import StartError, check_repository
from penstock.cli.arguments import UsageError
from penstock.cli.flags import FLAGS
from penstock.cli.unsupported import UNSUPPORTED_OPTIONS, refuse_unsupported
from penstock.cli.usage import serve_usage
from penstock.settings import RepositorySettings, Settings
from penstock.settings.fields import default_value
from penstock.settings.rules import SettingsError
from penstock.settings.without_effect import WITHOUT_EFFECT, without_effect

_OWN_ROOMS = ("cli", "settings")
"""They carry the settings, and do nothing with them."""


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the product but those rooms, by its path."""
    found = {}
    for package in (penstock, penstock_backends):
        assert package.__file__ is not None
        root = Path(package.__file__).parent
        for path in root.rglob("*.py"):
            if path.relative_to(root).parts[0] not in _OWN_ROOMS:
                found[str(path)] = ast.parse(path.read_text())
    return found


def leaves(value: Any, path: str = "", classes: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every field that is not a section, by its path, with the classes that lead to it."""
    classes = (*classes, type(value).__name__)
    for field in fields(value):
        inner = getattr(value, field.name)
        if is_dataclass(inner):
            yield from leaves(inner, f"{path}{field.name}.", classes)
        else:
            yield path + field.name, classes


FIELDS = dict(leaves(settings_of()))

REFUSED = {row.field for row in UNSUPPORTED_OPTIONS}
REFUSED_ENDPOINTS = {path.rpartition(".")[0] for path in REFUSED if path.endswith(".enabled")}
"""Whose other fields mean nothing while the endpoint is off, as in Triton."""


METHODS = {"backends.directory": "backends.options_for", "backends.config": "backends.options_for"}
"""Fields that are read by a method of the settings, which is what others call."""


def is_read(path: str) -> bool:
    """Whether a module reads the field: by its section, or of a class of the settings."""
    classes = set(FIELDS[path][1:])
    path = METHODS.get(path, path)
    section, _, name = path.rpartition(".")
    tail = f"{section.rpartition('.')[2]}.{name}" if section else f"settings.{name}"
    return any(_reads(tree, tail, name, classes) for tree in modules().values())


def _reads(tree: ast.Module, tail: str, name: str, classes: set[str]) -> bool:
    knows = bool(classes & _imported(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr == name:
            text = ast.unparse(node)
            if knows or text == tail or text.endswith(f".{tail}"):
                return True
    return False


def _imported(tree: ast.Module) -> set[str]:
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return {alias.name for node in imports for alias in node.names}


@pytest.mark.parametrize("path", FIELDS)
def test_every_setting_has_a_reader_or_a_refusal(path: str) -> None:
    told = {row.field for row in WITHOUT_EFFECT}
    section = path.rpartition(".")[0]
    assert path in REFUSED | told or section in REFUSED_ENDPOINTS or is_read(path)


@pytest.mark.parametrize("field", sorted({flag.field for flag in FLAGS.values()} - {""}))
def test_every_option_sets_a_setting(field: str) -> None:
    assert field in FIELDS or is_dataclass(default_value(field))


def test_options_without_effect_have_no_reader() -> None:
    """What is said to have no effect has no reader, and nothing is in both tables."""
    for row in WITHOUT_EFFECT:
        assert FLAGS[row.flag].field == row.field
        assert not is_read(row.field)
        assert row.field not in REFUSED


SAMPLES = {
    "--http-thread-count": "4",
    "--grpc-infer-thread-count": "4",
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
}


@pytest.mark.contract("EV-02", "EV-07", "EV-11", "EV-12")
@pytest.mark.parametrize("name", READ_VARIABLES)
def test_an_environment_variable_is_read(name: str) -> None:
    constants = (node for tree in modules().values() for node in ast.walk(tree))
    assert any(isinstance(node, ast.Constant) and node.value == name for node in constants)


@pytest.mark.contract("EV-01", "EV-03", "EV-09")
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


@pytest.mark.contract("EV-04", "EV-05", "EV-06")
@pytest.mark.parametrize("scheme", ["s3", "gs", "as"])
def test_what_variables_of_cloud_storage_are_for_is_refused(scheme: str) -> None:
    with pytest.raises(StartError, match=f"{scheme}:// is not supported"):
        check_repository(RepositorySettings(paths=(f"{scheme}://bucket/models",)))


@pytest.mark.contract("EV-08", "EV-09")
@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (["--trace-config=mode=opentelemetry"], {"OTEL_BSP_MAX_QUEUE_SIZE": "1"}),
        ([], {"AIP_MODE": "PREDICTION", "AIP_PREDICT_ROUTE": "/p", "AIP_HEALTH_ROUTE": "/h"}),
    ],
)
def test_what_further_variables_are_for_is_refused(
    arguments: list[str], environment: dict[str, str]
) -> None:
    with pytest.raises(SettingsError, match="not supported by Penstock yet"):
        refuse_unsupported(settings_of(*arguments, environment=environment))


@pytest.mark.contract("CL-37")
@pytest.mark.parametrize(
    "setting",
    ["level=TIMESTAMPS", "mode=opentelemetry", "opentelemetry,url=x", "opentelemetry,nope=1"],
)
def test_tracing_is_refused_by_name(setting: str) -> None:
    with pytest.raises(SettingsError, match=r"--trace-config .*\n.*tracing"):
        refuse_unsupported(settings_of(f"--trace-config={setting}"))


@pytest.mark.contract("CL-37")
@pytest.mark.parametrize("setting", ["nope=1", "triton,nope=1", "triton,rate=1", "level,x=1"])
def test_an_unknown_trace_setting_is_refused_by_name(setting: str) -> None:
    with pytest.raises(UsageError, match="--trace-config"):
        settings_of(f"--trace-config={setting}")


@pytest.mark.contract("CL-35")
def test_a_negative_interval_of_metrics_is_refused() -> None:
    assert settings_of("--metrics-interval-ms=0.5").metrics.interval_ms == 0.5
    with pytest.raises(UsageError, match="--metrics-interval-ms"):
        settings_of("--metrics-interval-ms=-1")
