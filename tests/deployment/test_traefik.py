"""Traefik's files, which only their own names can be checked in: the program is not to be had."""

from __future__ import annotations

import pytest
import yaml

from deployment.proxies import PROXIES

_STATIC = yaml.safe_load((PROXIES / "traefik" / "traefik.yaml").read_text())
_HTTP = yaml.safe_load((PROXIES / "traefik" / "dynamic.yaml").read_text())["http"]


@pytest.mark.contract("K-12")
def test_routers_lead_from_an_entry_point_to_a_service_of_its_protocol() -> None:
    for name, router in _HTTP["routers"].items():
        (entry,) = router["entryPoints"]
        servers = _HTTP["services"][router["service"]]["loadBalancer"]["servers"]
        scheme, port = {"http": ("http", 8000), "grpc": ("h2c", 8001)}[entry]
        assert name.startswith(entry)
        assert entry in _STATIC["entryPoints"]
        assert [server["url"] for server in servers] == [
            f"{scheme}://penstock-1:{port}",
            f"{scheme}://penstock-2:{port}",
        ]


def test_readiness_is_asked_for_everywhere() -> None:
    checks = [each["loadBalancer"]["healthCheck"] for each in _HTTP["services"].values()]
    asked = {(check["scheme"], check["port"], check["path"]) for check in checks}
    assert asked == {("http", 8000, "/v2/health/ready")}
    assert len(checks) == 4


def test_streams_may_last() -> None:
    timeouts = [
        point["transport"]["respondingTimeouts"] for point in _STATIC["entryPoints"].values()
    ]
    assert {(each["readTimeout"], each["writeTimeout"]) for each in timeouts} == {("0s", "0s")}
