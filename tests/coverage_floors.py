"""Print the branch coverage of each room and fail where one is below its floor.

    python tests/coverage_floors.py [REPORT]

REPORT is what SlipCover wrote, by default build/coverage.json. The floors are percentages in
[tool.penstock.coverage-floors] of pyproject.toml.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "build" / "coverage.json"
RECORDINGS = ROOT.parent / "shared" / "golden"


@dataclass(slots=True)
class Room:
    """Coverage of one folder of the package: statements and branches."""

    covered: int = 0
    all: int = 0

    def add(self, summary: Mapping[str, int]) -> None:
        """Add one file's summary of the report."""
        covered = summary["covered_lines"] + summary["covered_branches"]
        self.covered += covered
        self.all += covered + summary["missing_lines"] + summary["missing_branches"]

    @property
    def percent(self) -> float:
        return 100.0 * self.covered / self.all if self.all else 100.0


def room_of(path: str) -> str:
    """The room that a file belongs to: `core`, `backends/python`, or `.` on top of the package."""
    _, package, *folders = PurePath(path).parent.parts
    room = folders[0] if folders else "."
    inside = package.removeprefix("penstock").removeprefix("_")
    return f"{inside}/{room}" if inside else room


def rooms(report: Mapping[str, Any]) -> dict[str, Room]:
    """Coverage by room, by name."""
    found: dict[str, Room] = {}
    for path, file in report["files"].items():
        found.setdefault(room_of(path), Room()).add(file["summary"])
    return dict(sorted(found.items()))


def faults(found: Mapping[str, Room], floors: Mapping[str, float]) -> list[str]:
    """Violations: rooms below their floor, rooms without one, floors without a room."""
    return [
        *(
            f"{name}: {room.percent:.1f} % is below the floor of {floors[name]} %: write tests"
            for name, room in found.items()
            if room.percent < floors.get(name, 0)
        ),
        *(f"{name}: the room has no floor" for name in found if name not in floors),
        *(f"{name}: no file of this room was measured" for name in floors if name not in found),
    ]


def table(found: Mapping[str, Room], floors: Mapping[str, float]) -> str:
    """A line for each room: its coverage and its floor, in percent."""
    lines = [f"{name:26}{room.percent:7.1f}{floors.get(name, 0):7}" for name, room in found.items()]
    return "\n".join([f"{'room':26}{'%':>7}{'floor':>7}", *lines])


def main(arguments: Sequence[str]) -> int:
    report = json.loads(Path(arguments[0] if arguments else REPORT).read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    floors = project["tool"]["penstock"]["coverage-floors"]
    found = rooms(report)
    print(table(found, floors))
    if not RECORDINGS.exists():
        print(f"floors are not checked: tests of recorded answers are skipped without {RECORDINGS}")
        return 0
    wrong = faults(found, floors)
    for fault in wrong:
        print(f"pyproject.toml, [tool.penstock.coverage-floors]: {fault}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
