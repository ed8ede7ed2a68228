"""The compose files, checked by the library that `docker compose` reads them with."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from deploy.observability.stack import HERE
from programs.places import find

_CHECKER = find("compose-spec")
pytestmark = pytest.mark.needs(
    "compose-spec", "" if _CHECKER else "there is no compose-spec: `make tools` says why"
)


def _project(*names: str) -> dict[str, Any]:
    command = [_CHECKER, "--format=json", *names]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("names", [["compose.yaml"], ["compose.yaml", "compose.gpu.yaml"]])
def test_compose_files_fit_the_specification(names: list[str]) -> None:
    services = _project(*names)["services"]
    assert set(services) == {"penstock", "prometheus", "grafana", "jaeger"}


def test_what_is_mounted_exists() -> None:
    """The demo's models are left out, since `make demo` writes them."""
    mounts = [
        Path(mount["source"])
        for service in _project("compose.yaml")["services"].values()
        for mount in service["volumes"]
        if mount["type"] == "bind" and mount["target"] != "/models"
    ]
    assert len(mounts) >= 4
    assert [mount for mount in mounts if not mount.exists()] == []


def test_ports_are_of_this_machine_alone() -> None:
    services = _project("compose.yaml")["services"].values()
    ports = [port for service in services for port in service["ports"]]
    assert len(ports) == 8
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_wrong_field_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "compose.yaml"
    wrong.write_text("services: {penstock: {image: penstock, portz: ['8000:8000']}}")
    with pytest.raises(AssertionError, match="portz"):
        _project(str(wrong))
