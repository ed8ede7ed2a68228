"""Where vLLM's own spans are sent, and what they are children of."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.backend import OTLP_ENDPOINT, OTLP_PROTOCOL
from penstock.core.timeline import Trace, TraceContext
from penstock_backends.vllm.arguments.engine_args import EngineArguments
from penstock_backends.vllm.own_spans import add_endpoint, trace_headers

ENDPOINT = "http://collector:4318/v1/traces"


@pytest.fixture(autouse=True)
def available(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bool]]:
    """vLLM as far as it is asked whether it finds OpenTelemetry."""
    answer = {"found": True}
    module: Any = ModuleType("vllm.tracing")
    module.is_tracing_available = lambda: answer["found"]
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.tracing", module)
    yield answer
    logging.getLogger("opentelemetry").setLevel(logging.NOTSET)


def add(values: dict[str, Any], **environment: str) -> tuple[bool, Any, dict[str, str]]:
    """Whether there are spans, vLLM's argument, and the environment after it."""
    made = add_endpoint(EngineArguments(values, Path("model.json")), environment)
    return made, values.get("otlp_traces_endpoint", "absent"), environment


def exporting(**more: str) -> dict[str, str]:
    """The environment of a model process whose server exports spans."""
    return {OTLP_ENDPOINT: ENDPOINT, OTLP_PROTOCOL: "http/protobuf", **more}


def test_without_a_collector_there_are_no_spans() -> None:
    assert add({}) == (False, "absent", {})


def test_the_servers_collector_is_the_default_and_its_sampling_is_followed() -> None:
    made, endpoint, environment = add({}, **exporting())
    assert (made, endpoint) == (True, ENDPOINT)
    assert environment == exporting(
        OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="http/protobuf",
        OTEL_EXPORTER_OTLP_TRACES_TIMEOUT="2",
        OTEL_TRACES_SAMPLER="parentbased_always_off",
        OTEL_SERVICE_NAME="vllm",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_SERVICE_NAME", "mine"), ("OTEL_RESOURCE_ATTRIBUTES", "a=b,service.name=mine")],
)
def test_the_operators_name_of_the_service_is_kept(name: str, value: str) -> None:
    environment = add({}, **exporting(**{name: value}))[2]
    assert environment[name] == value
    assert environment.get("OTEL_SERVICE_NAME") in (None, "mine")


@pytest.mark.parametrize(
    "name", ["OTEL_EXPORTER_OTLP_TIMEOUT", "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT"]
)
def test_the_operators_time_limit_is_kept(name: str) -> None:
    environment = add({}, **exporting(**{name: "7"}))[2]
    assert {value for key, value in environment.items() if "TIMEOUT" in key} == {"7"}


@pytest.mark.parametrize(("own", "made"), [("http://own:4317", True), (None, False)])
def test_what_the_model_says_comes_first(own: str | None, made: bool) -> None:
    assert add({"otlp_traces_endpoint": own}, **exporting()) == (made, own, exporting())


def test_without_opentelemetry_vllm_starts_and_makes_none(available: dict[str, bool]) -> None:
    available["found"] = False
    assert add({}, **exporting()) == (False, "absent", exporting())


def test_a_missing_vllm_is_not_noticed_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm.tracing", None)
    assert add({}, **exporting())[0] is False


def test_a_span_is_a_child_of_the_servers() -> None:
    timeline = Trace(1, caller=TraceContext(1, 2, state="a=b"), propagated=True).root
    assert trace_headers(timeline) == {
        "traceparent": f"00-{1:032x}-{timeline.span_id:016x}-01",
        "tracestate": "a=b",
    }


def test_headers_that_a_caller_did_not_send_are_left_out() -> None:
    timeline = Trace(1, propagated=True).root
    assert trace_headers(timeline) == {"traceparent": timeline.context.traceparent}


def test_a_trace_that_is_not_exported_has_no_headers() -> None:
    assert trace_headers(Trace(1).root) is None


def test_complaints_about_the_servers_collector_are_left_to_the_server() -> None:
    exporter = logging.getLogger("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    add({"otlp_traces_endpoint": "http://own:4317"}, **exporting())
    assert exporter.isEnabledFor(logging.ERROR)
    add({}, **exporting())
    assert not exporter.isEnabledFor(logging.ERROR)
