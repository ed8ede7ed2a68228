"""Model processes learn of the collector that the server sends its spans to."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from harness.serving import serving
from penstock.backend import OTLP_ENDPOINT, OTLP_PROTOCOL
from penstock.settings import OpenTelemetrySettings, TraceSettings
from penstock.tracing.model_environment import model_environment

_MODEL = """\
import os

import numpy as np
from penstock.model import Model, Request, Response


class Environment(Model):
    async def infer(self, request: Request):
        names = ("PENSTOCK_OTLP_TRACES_ENDPOINT", "PENSTOCK_OTLP_TRACES_PROTOCOL")
        return Response({"OUT": np.array([os.environ[name].encode() for name in names], object)})
"""
_CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_INT32 dims: 1 optional: true }
output { name: "OUT" data_type: TYPE_STRING dims: 2 }
"""


def test_a_server_that_does_not_export_tells_nothing() -> None:
    given = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}
    assert model_environment(TraceSettings(file="t.json"), given) == {}


@pytest.mark.contract("T-03")
@pytest.mark.parametrize(
    ("settings", "given", "endpoint"),
    [
        ({}, {}, "http://localhost:4318/v1/traces"),
        ({"protocol": "grpc"}, {}, "http://localhost:4317"),
        ({}, {"ENDPOINT": "http://c:1/"}, "http://c:1/v1/traces"),
        ({"protocol": "grpc"}, {"ENDPOINT": "http://c:1"}, "http://c:1"),
        ({}, {"ENDPOINT": "http://c:1", "TRACES_ENDPOINT": "http://d:2/t"}, "http://d:2/t"),
        ({"url": "http://e/x"}, {"TRACES_ENDPOINT": "http://d:2/t"}, "http://e/x"),
        ({}, {"ENDPOINT": " ", "TRACES_ENDPOINT": ""}, "http://localhost:4318/v1/traces"),
    ],
)
def test_the_endpoint_is_the_one_that_the_server_uses(
    settings: Any, given: dict[str, str], endpoint: str
) -> None:
    named = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in given.items()}
    mode = OpenTelemetrySettings(**settings)
    found = model_environment(TraceSettings(mode="opentelemetry", opentelemetry=mode), named)
    assert found == {OTLP_ENDPOINT: endpoint, OTLP_PROTOCOL: mode.protocol}


@pytest.mark.slow
def test_a_model_process_has_it_in_its_environment(tmp_path: Path) -> None:
    version = tmp_path / "models" / "environment" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(_MODEL)
    (version.parent / "config.pbtxt").write_text(_CONFIG)
    url = "http://127.0.0.1:9/v1/traces"
    mode = ("--trace-config=mode=opentelemetry", f"--trace-config=opentelemetry,url={url}")
    with serving(tmp_path / "models", tmp_path / "log", *mode) as server:
        address = f"http://{server.http}/v2/models/environment/infer"
        with urllib.request.urlopen(address, b'{"inputs":[]}', timeout=60) as reply:
            outputs = json.load(reply)["outputs"]
    assert outputs[0]["data"] == [url, "http/protobuf"]
