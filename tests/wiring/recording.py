"""What tests read of each wire, told by one run of them: who could notice that it is cut."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .tree import Tree

Reads = dict[str, list[str]]
Place = tuple[str, str]
"""A wire, and the module that reads it."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The tests of a folder, with the seconds of each, and of the longest setup of each file.

    `given` has, by wire and reader, the tests through the door in which a value came that is not
    the default, and files whose servers read it; `read` has who reads at all.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    setup: dict[str, float] = field(default_factory=dict)
    given: dict[str, list[str]] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def save(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1))


def record(tree: Tree, folder: str, timeout: float) -> Recording:
    """Run the tests of a folder, with nothing cut."""
    tree.forget()
    tree.test("-m", "not gate", f"tests/{folder}", timeout=timeout)
    return _summed(list(tree.told()))


def _summed(lines: Iterable[Sequence[str]]) -> Recording:
    seconds: dict[str, float] = defaultdict(float)
    setup: dict[str, float] = defaultdict(float)
    failed, doors = set[str](), set[str]()
    given: dict[str, set[str]] = defaultdict(set)
    read = set[str]()
    for kind, *words, test, of_file in lines:
        if kind == "outcome":
            if words[0] == "setup":
                setup[_file(test)] = max(setup[_file(test)], float(words[2]))
            else:
                seconds[test] += float(words[2])
            if words[1] == "failed":
                failed.add(test)
        elif kind == "door":
            doors.update((test, _file(test)))
        else:
            key = " ".join(words)
            read.add(key)
            if kind == "given":
                given[key].update((test, _file(test)) if of_file else (test,))
    noticing = {key: sorted(tests & doors) for key, tests in given.items()}
    kept = {key: tests for key, tests in noticing.items() if tests}
    return Recording(dict(seconds), dict(setup), kept, sorted(read), sorted(failed))


def _file(test: str) -> str:
    return test.partition("::")[0]


def load(folder: Path) -> Recording:
    """The recordings of all folders as one."""
    whole = Recording()
    for file in sorted(folder.glob("*.json")):
        part = Recording(**json.loads(file.read_text()))
        whole.seconds.update(part.seconds)
        whole.setup.update(part.setup)
        whole.failed.extend(part.failed)
        whole.read.extend(part.read)
        for key, tests in part.given.items():
            whole.given.setdefault(key, []).extend(tests)
    return whole
