"""The manifests for KServe, whose schemas no package has, held against the server."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli.arguments import parse_arguments
from penstock.cli.unsupported import refuse_unsupported

_ROOT = Path(__file__).parents[2]
_FOLDER = _ROOT / "deploy" / "kserve"
_RUNTIME = yaml.safe_load((_FOLDER / "serving-runtime.yaml").read_text())["spec"]
_SERVICES = [*yaml.safe_load_all((_FOLDER / "inference-service.yaml").read_text())]

# The arguments of KServe's own runtime for Triton, kserve-tritonserver.
_KSERVE = (
    "--model-store=/mnt/models",
    "--grpc-port=9000",
    "--http-port=8080",
    "--allow-grpc=true",
    "--allow-http=true",
)


def _predictor(service: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = service["spec"]["predictor"]["model"]
    return found


@pytest.mark.contract("K-15")
def test_arguments_of_kserve_are_taken_without_a_word() -> None:
    warnings: list[str] = []
    settings = parse_arguments(_KSERVE, {}, warnings.append)
    refuse_unsupported(settings)
    assert [str(path) for path in settings.repository.paths] == ["/mnt/models"]
    assert (settings.http.port, settings.grpc.port, warnings) == (8080, 9000, [])


@pytest.mark.contract("K-15")
def test_runtime_starts_the_server_as_kserve_starts_triton() -> None:
    (server,) = _RUNTIME["containers"]
    scripts = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert server["args"] == ["tritonserver", *_KSERVE]
    assert server["name"] == "kserve-container"
    assert "tritonserver" in scripts


@pytest.mark.contract("K-15")
def test_runtime_is_probed_where_the_server_answers() -> None:
    probe = _RUNTIME["containers"][0]["readinessProbe"]["httpGet"]
    assert probe == {"path": "/v2/health/ready", "port": 8080}
    assert _RUNTIME["annotations"] == {
        "prometheus.kserve.io/port": "8002",
        "prometheus.kserve.io/path": "/metrics",
    }


@pytest.mark.contract("K-15")
@pytest.mark.parametrize("service", _SERVICES, ids=[each["metadata"]["name"] for each in _SERVICES])
def test_runtime_is_chosen_for_the_example(service: dict[str, Any]) -> None:
    chosen = {each["name"] for each in _RUNTIME["supportedModelFormats"] if each["autoSelect"]}
    assert _predictor(service)["modelFormat"]["name"] in chosen
    assert _predictor(service)["protocolVersion"] in _RUNTIME["protocolVersions"]


def test_example_over_grpc_opens_the_port_of_grpc() -> None:
    (port,) = _predictor(_SERVICES[1])["ports"]
    assert (port["name"], port["containerPort"]) == ("h2c", 9000)
