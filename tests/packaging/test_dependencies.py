"""Declared dependencies are those that the code imports, in versions that it is tested with."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import penstock
import penstock_client

ROOT = Path(__file__).parents[2]
MODULES = {
    "grpcio": "grpc",
    "protobuf": "google.protobuf",
    "nvidia-ml-py": "pynvml",
    "opentelemetry-api": "opentelemetry.trace",
    "opentelemetry-sdk": "opentelemetry.sdk",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry.exporter.otlp.proto.http",
    "opentelemetry-exporter-otlp-proto-grpc": "opentelemetry.exporter.otlp.proto.grpc",
}
"""The module that stands for a distribution, where it is not of the same name."""


PACKAGES = {
    "penstock": (ROOT, ("service", "backends")),
    "penstock-client": (ROOT / "client", ("client",)),
}
"""Distribution -> the folder of its project, and those of its sources."""


def _project(distribution: str) -> dict[str, Any]:
    folder, _ = PACKAGES[distribution]
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return project


def _requirements(distribution: str) -> dict[str, str]:
    """The versions that a package asks for, by the name of the distribution."""
    declared = _project(distribution)["dependencies"]
    parts = (re.fullmatch(r"([\w-]+)(.*)", requirement) for requirement in declared)
    return {part[1]: part[2] for part in parts if part}


_IMPORT = re.compile(r"^ *(?:from (?P<module>\S+) )?import (?P<names>[^(\n#]*)", re.MULTILINE)


def _imports(distribution: str) -> Iterator[str]:
    """Imported names; read as lines, since parsing a thousand files takes seconds."""
    for room in PACKAGES[distribution][1]:
        for path in (ROOT / room).rglob("*.py"):
            for found in _IMPORT.finditer(path.read_text()):
                names = [name.split()[0] for name in found["names"].split(",") if name.strip()]
                module = found["module"]
                yield from (f"{module}.{name}" for name in names or [""]) if module else names


@pytest.mark.parametrize("distribution", PACKAGES)
def test_each_dependency_is_imported(distribution: str) -> None:
    imported = list(_imports(distribution))
    modules = {MODULES.get(name, name.replace("-", "_")) for name in _requirements(distribution)}
    used = {module for module in modules if any(f"{n}.".startswith(f"{module}.") for n in imported)}
    assert modules - used == set()


def test_client_package_is_for_the_server_of_its_version() -> None:
    """What it imports of the server is not stable."""
    assert penstock_client.__version__ == penstock.__version__
    assert _requirements("penstock-client")["penstock"] == f"=={penstock.__version__}"


def test_extras_of_the_server_that_moved_are_those_of_the_client_package() -> None:
    extras = _project("penstock")["optional-dependencies"]
    moved = [extra for name in ("http-client", "tune") for extra in extras[name]]
    assert moved == ["penstock-client[http]", "penstock-client[report,tune]"]
    assert {"http", "report", "tune"} <= _project("penstock-client")["optional-dependencies"].keys()


@pytest.mark.parametrize("name", ["grpcio", "protobuf"])
def test_packages_whose_internals_are_used_have_an_upper_bound(name: str) -> None:
    assert re.search(r">=[\d.]+,<[\d.]+$", _requirements("penstock")[name])


def _pinned() -> dict[str, str]:
    """What the image has installed: versions by the name of the distribution."""
    text = (ROOT / "deploy" / "image" / "requirements.txt").read_text()
    found = re.findall(r"^([\w-]+)==(\S+).*\\\n    --hash=sha256:", text, re.MULTILINE)
    return dict(found)


def test_the_image_has_pins_of_all_that_the_package_needs() -> None:
    """Write them with `make pins`."""
    project = _project("penstock")
    extras = project["optional-dependencies"]
    needed = project["dependencies"] + extras["onnx"] + extras["openvino"] + extras["openai"]
    for requirement in map(Requirement, needed):
        assert _pinned()[requirement.name] in requirement.specifier, requirement


def test_no_pin_is_without_a_hash() -> None:
    text = (ROOT / "deploy" / "image" / "requirements.txt").read_text()
    assert len(_pinned()) == len({*re.findall(r"^([\w-]+)==", text, re.MULTILINE)})
