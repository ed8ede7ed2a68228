"""The compose file of two servers, and what `make replicas` makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.reading import settings_of
from deploy.observability.stack import HERE as OBSERVABILITY
from deploy.replicas.seen import COMPOSE, NAMES, PROXY, Counts, Phase, command_of, haproxy_on, row
from harness.compose import needs_compose, project

_PORTS = {"http": 1, "grpc": 2, "metrics": 3}
_MODELS = Path("/some/models")


def _written() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found


@needs_compose
def test_file_has_a_proxy_two_servers_and_what_looks_at_them() -> None:
    services = project(COMPOSE.parent, COMPOSE.name)["services"]
    assert set(services) == {*NAMES, "proxy", "prometheus", "grafana", "jaeger"}
    (mount,) = services["proxy"]["volumes"]
    assert Path(mount["source"]) == PROXY
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


@needs_compose
def test_what_looks_at_them_is_the_stack_of_one_server_with_other_targets() -> None:
    services = project(COMPOSE.parent, COMPOSE.name)["services"]
    others = project(OBSERVABILITY, "compose.yaml")["services"]
    for name in ("prometheus", "grafana", "jaeger"):
        assert services[name]["image"] == others[name]["image"]
    mounts = {m["target"]: m["source"] for m in services["prometheus"]["volumes"]}
    assert Path(mounts["/etc/prometheus"]) == OBSERVABILITY / "prometheus"
    targets = Path(mounts["/etc/prometheus/targets"]) / "servers.yml"
    assert yaml.safe_load(targets.read_text()) == [{"targets": [f"{name}:8002" for name in NAMES]}]


def test_servers_differ_in_their_name_alone() -> None:
    one, other = (dict(_written()[name]) for name in NAMES)
    names = [service.pop("environment")["OTEL_RESOURCE_ATTRIBUTES"] for service in (one, other)]
    assert one == other
    assert names == [f"service.instance.id={name}" for name in NAMES]


def test_command_is_one_of_the_server() -> None:
    program, *arguments = command_of(_written()[NAMES[0]], _MODELS, _PORTS, "http://traces")
    settings = settings_of(*arguments)
    assert program == "tritonserver"
    assert (settings.http.port, settings.grpc.port) == (1, 2)
    assert "--trace-config=opentelemetry,url=http://traces" in arguments
    assert f"--model-repository={_MODELS}" in arguments
    assert not [word for word in arguments if "$" in word or "jaeger" in word]


def test_command_without_a_collector_traces_nothing() -> None:
    words = command_of(_written()[NAMES[0]], _MODELS, _PORTS, "")
    assert not [word for word in words if "trace" in word]


def test_proxy_gets_ports_of_this_machine() -> None:
    ports = {("", 8000): 80, ("", 8001): 81}
    for number, name in enumerate(NAMES, 1):
        ports |= {(name, 8000): 100 * number, (name, 8001): 100 * number + 1}
    text = haproxy_on(PROXY.read_text(), ports)
    assert "server penstock-2 127.0.0.1:201 proto h2 check-proto h1 port 200" in text
    assert "bind 127.0.0.1:81 proto h2" in text
    assert ":800" not in "".join(line for line in text.splitlines() if not line.startswith("#"))


@pytest.mark.parametrize("failed", [0, 2])
def test_row_tells_what_failed(failed: int) -> None:
    counts = Counts(slowest=0.25)
    counts.answered["gRPC"], counts.failed["gRPC"] = 7, failed
    phase = Phase("kill", 3.2, counts, dict.fromkeys(NAMES, 4), 1, "pending")
    start = f"| kill | 3 s | 7 / {failed} | 0 / 0 | 0 / 0 | 250 ms | 4, 4 "
    assert row(phase) == f"{start}| 1 of 2 | pending |"
