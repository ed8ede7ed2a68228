"""The record of a search: each measurement is appended at once, so that a stop loses nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from penstock_client.perf.errors import Status
from penstock_client.tune.choice import Figures
from penstock_client.tune.errors import TuneError
from penstock_client.tune.space import Changes, key

FILE = "measurements.jsonl"
_VERSION = 1


class Record:
    """Measurements by variant and load, on disk and here; failures by variant.

    The first line holds the circumstances, which have to be equal for measurements to be
    comparable, and each other line one load of a variant, or why it failed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.facts: dict[str, Any] = {}
        self.points: dict[str, dict[str, Figures]] = {}
        self.failures: dict[str, str] = {}

    def begin(self, circumstances: Mapping[str, Any], *, resume: bool) -> None:
        """Start anew, or read what is there; raises `TuneError`."""
        if self._path.exists() and not resume:
            if any("load" in line for line in self._read()):
                raise TuneError(
                    f"{self._path.parent} holds the measurements of another search: go on with it"
                    " by --resume, or choose another --output"
                )
            self._path.unlink()  # of a search that ended before its first measurement
        if not self._path.exists():
            self._append({"version": _VERSION, "circumstances": circumstances})
            return
        lines = self._read()
        head = next(lines, {})
        if head.get("version") != _VERSION:
            raise TuneError(f"{self._path} is not a record of this version of penstock tune")
        _compare(self._path, head["circumstances"], circumstances)
        for line in lines:
            self._take(line)

    def add_facts(self, facts: Mapping[str, Any]) -> None:
        """Keep what the server told of the model, so that a resumed search need not ask."""
        self.facts = dict(facts)
        self._append({"facts": self.facts})

    def add(self, changes: Changes, load: str, figures: Figures) -> None:
        """Keep the figures of one load."""
        line = {"changes": changes, "load": load, "figures": figures}
        self._take(line)
        self._append(line)

    def add_failure(self, changes: Changes, reason: str) -> None:
        """Keep why a variant cannot be measured, or not further."""
        line = {"changes": changes, "failure": reason}
        self._take(line)
        self._append(line)

    def _take(self, line: Mapping[str, Any]) -> None:
        if "facts" in line:
            self.facts = dict(line["facts"])
            return
        name = key(line["changes"])
        if "failure" in line:
            self.failures[name] = line["failure"]
        else:
            self.points.setdefault(name, {})[line["load"]] = line["figures"]

    def _append(self, line: Mapping[str, Any]) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            text = f"{self._path} cannot be written: {error.strerror}"
            raise TuneError(text, Status.USAGE) from error

    def _read(self) -> Iterator[dict[str, Any]]:
        """The lines; one that a sudden end has cut off is removed from the file."""
        try:
            whole = self._path.read_bytes()
            kept = whole[: whole.rfind(b"\n") + 1]
            if kept != whole:
                self._path.write_bytes(kept)
        except OSError as error:
            raise TuneError(f"{self._path} cannot be read: {error.strerror}") from error
        for number, text in enumerate(kept.splitlines(), 1):
            try:
                line = json.loads(text)
            except ValueError as error:
                raise TuneError(f"{self._path}:{number}: not JSON: {error}") from error
            if not isinstance(line, dict):
                raise TuneError(f"{self._path}:{number}: not an object of JSON")
            yield line


def _compare(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    # JSON knows no tuples: what was written is compared with what would be.
    wanted = json.loads(json.dumps(now))
    differing = [name for name in wanted if before.get(name) != wanted[name]]
    if differing:
        raise TuneError(
            f"{path} was measured with another {' and '.join(differing)}: its figures cannot be"
            " compared with new ones; choose another --output"
        )
