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

_SECONDS = 60.0
"""Of tests that are asked about one cut, as long as the recording took for them."""


_EVERYWHERE = {"model", "server"}
"""Words that say nothing about a test."""


def jobs(recording: Recording, wires: Iterable[str], how: str = "cut") -> list[dict[str, Any]]:
    """The cuts, each with the tests that may notice it; none for what no test gives."""
    by_wire: dict[str, set[str]] = defaultdict(set)
    for place, tests in recording.given.items():
        by_wire[place.partition(" ")[0]].update(tests)
    return [
        {"cut": {"wire": wire, "reader": "any", "how": how}, "tests": asked}
        for wire in wires
        if (asked := list(_asked(recording, wire, by_wire[wire])))
    ]


def _asked(recording: Recording, wire: str, tests: set[str]) -> Iterator[str]:
    """Tests whose names say most of the wire first, and of those the quickest."""
    words, setup = _words(wire.rpartition(".")[2]) - _EVERYWHERE, recording.setup

    def rank(test: str) -> tuple[int, float]:
        said = len(words & _words(test))
        return -said, setup.get(_file(test), 0.0) + recording.seconds.get(test, 0.0)

    left, files = _SECONDS, set[str]()
    for number, test in enumerate(sorted(_single(recording, tests), key=rank)):
        once = 0.0 if _file(test) in files else setup.get(_file(test), 0.0)
        left -= recording.seconds.get(test, 0.0) + once
        files.add(_file(test))
        if left < 0 and number > 0:
            return
        yield test


def _single(recording: Recording, tests: set[str]) -> set[str]:
    """The tests, with those of a file for the file."""
    of_files = {test for test in recording.seconds if _file(test) in tests}
    return {test for test in tests | of_files if "::" in test} - set(recording.failed)


def _file(test: str) -> str:
    return test.partition("::")[0]


def _words(text: str) -> set[str]:
    return {word.rstrip("s") for word in re.findall(r"[a-z]{3,}", text.lower())}


def cut_all(tree: Tree, work: Sequence[dict[str, Any]], file: Path) -> None:
    """Make the cuts, all in one run of pytest; outcomes come into a file beside `file`."""
    file.write_text(json.dumps(work))
    files = sorted({test.partition("::")[0] for job in work for test in job["tests"]})
    tree.fork(file, files)


def outcomes(file: Path) -> Iterator[dict[str, str]]:
    """What became of each cut."""
    for line in file.read_text().splitlines() if file.exists() else ():
        yield json.loads(line)
