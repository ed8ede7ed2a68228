"""Cuts of wires one at a time, and the tests through the door that notice them."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .recording import Recording
from .tree import Tree

_SECONDS = 30.0
"""Of tests that are asked about one cut, as long as the recording took for them."""


def jobs(recording: Recording, wires: Iterable[str], how: str = "cut") -> list[dict[str, Any]]:
    """The cuts, each with the tests that may notice it; none for what no test gives."""
    by_wire: dict[str, set[str]] = defaultdict(set)
    for place, tests in recording.given.items():
        by_wire[place.partition(" ")[0]].update(set(tests) - set(recording.failed))
    return [
        {"cut": {"wire": wire, "reader": "any", "how": how}, "tests": asked}
        for wire in wires
        if (asked := list(_asked(recording, wire, by_wire[wire])))
    ]


def _asked(recording: Recording, wire: str, tests: set[str]) -> Iterator[str]:
    """Tests whose names say most of the wire first, and of those the quickest."""
    words = _words(wire)
    setup = recording.setup

    def rank(test: str) -> tuple[int, float]:
        return -len(words & _words(test)), setup.get(test.partition("::")[0], 0.0) + _seconds(
            recording, test
        )

    left, files = _SECONDS, set[str]()
    for number, test in enumerate(sorted(tests, key=rank)):
        file = test.partition("::")[0]
        left -= _seconds(recording, test) + (0.0 if file in files else setup.get(file, 0.0))
        files.add(file)
        if left < 0 and number > 0:
            return
        yield test


def _words(text: str) -> set[str]:
    return {word.rstrip("s") for word in re.findall(r"[a-z]{3,}", text.lower())}


def _seconds(recording: Recording, test: str) -> float:
    if "::" in test:
        return recording.seconds.get(test, 0.0)
    return sum(s for name, s in recording.seconds.items() if name.startswith(f"{test}::"))


def cut_all(tree: Tree, work: Sequence[dict[str, Any]], file: Path) -> None:
    """Make the cuts, all in one run of pytest; outcomes come into a file beside `file`."""
    file.write_text(json.dumps(work))
    files = sorted({test.partition("::")[0] for job in work for test in job["tests"]})
    tree.fork(file, files)


def outcomes(file: Path) -> Iterator[dict[str, str]]:
    """What became of each cut."""
    for line in file.read_text().splitlines() if file.exists() else ():
        yield json.loads(line)
