"""The floors of coverage: what a report of SlipCover says of each room."""

from __future__ import annotations

import tomllib
from typing import Any

import coverage_floors
from coverage_floors import ROOT, Room


def file(covered: int, missing: int) -> dict[str, Any]:
    """A file of the report, with as many branches as lines."""
    return {
        "summary": {
            "covered_lines": covered,
            "covered_branches": covered,
            "missing_lines": missing,
            "missing_branches": missing,
        }
    }


def test_files_belong_to_the_room_below_their_package() -> None:
    assert coverage_floors.room_of("service/penstock/models/loading/backends.py") == "models"
    assert coverage_floors.room_of("service/penstock/model.py") == "."
    assert coverage_floors.room_of("backends/penstock_backends/repeat/__init__.py") == (
        "backends/repeat"
    )
    assert coverage_floors.room_of("client/penstock_client/perf/wire/grpc.py") == "client/perf"


def test_room_counts_lines_and_branches_of_its_files() -> None:
    report = {
        "files": {
            "service/penstock/core/tensor.py": file(3, 1),
            "service/penstock/core/config/tensors.py": file(5, 1),
        }
    }
    assert coverage_floors.rooms(report) == {"core": Room(covered=16, all=20)}


def test_room_at_its_floor_is_no_fault() -> None:
    assert coverage_floors.faults({"core": Room(9, 10)}, {"core": 90}) == []


def test_room_below_its_floor_is_named() -> None:
    (fault,) = coverage_floors.faults({"core": Room(89, 100)}, {"core": 90})
    assert fault == "core: 89.0 % is below the floor of 90 %: write tests"


def test_each_room_has_a_floor() -> None:
    assert coverage_floors.faults({"core": Room(1, 1)}, {}) == ["core: the room has no floor"]


def test_floor_of_a_room_that_is_gone_is_named() -> None:
    (fault,) = coverage_floors.faults({}, {"core": 90})
    assert fault == "core: no file of this room was measured"


def test_rooms_of_the_packages_are_those_that_have_floors() -> None:
    """Found in a second, not at the end of a whole run; generated code is not measured."""
    packages = [
        ROOT / name
        for name in ("service/penstock", "backends/penstock_backends", "client/penstock_client")
    ]
    modules = [
        str(path.relative_to(ROOT)) for package in packages for path in package.rglob("*.py")
    ]
    there = set(map(coverage_floors.room_of, modules)) - {"protocol"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert set(project["tool"]["penstock"]["coverage-floors"]) == there
