"""The compose files, checked by the library that `docker compose` reads them with."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.observability.stack import HERE
from harness.compose import needs_compose, project

pytestmark = needs_compose


@pytest.mark.parametrize("names", [["compose.yaml"], ["compose.yaml", "compose.gpu.yaml"]])
def test_compose_files_fit_the_specification(names: list[str]) -> None:
    services = project(HERE, *names)["services"]
    assert set(services) == {"penstock", "prometheus", "grafana", "jaeger"}


def test_what_is_mounted_exists() -> None:
    """The demo's models are left out, since `make demo` writes them."""
    mounts = [
        Path(mount["source"])
        for service in project(HERE, "compose.yaml")["services"].values()
        for mount in service["volumes"]
        if mount["type"] == "bind" and mount["target"] != "/models"
    ]
    assert len(mounts) >= 4
    assert [mount for mount in mounts if not mount.exists()] == []


def test_ports_are_of_this_machine_alone() -> None:
    services = project(HERE, "compose.yaml")["services"].values()
    ports = [port for service in services for port in service["ports"]]
    assert len(ports) == 8
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_wrong_field_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "compose.yaml"
    wrong.write_text("services: {penstock: {image: penstock, portz: ['8000:8000']}}")
    with pytest.raises(AssertionError, match="portz"):
        project(tmp_path, wrong.name)
