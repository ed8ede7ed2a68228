"""Findings of a check: what is wrong with a model, where, why, and what to write instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Level(StrEnum):
    """The level of a finding: an error keeps the model from loading, a warning does not."""

    ERROR = "error"
    WARNING = "warning"


class Place(NamedTuple):
    """A file, or an address in a bucket, and a line and column from 1 on; 0 where neither fits."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fault of one model.

    `rule` names its kind. `reason` is the text of the load; `fix` is what to write. `cause` is the
    error that the load raises, too.
    """

    model: str
    level: Level
    rule: str
    place: Place
    reason: str
    fix: str = ""
    cause: BaseException | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ModelReport:
    """The findings of one model, the versions that a load brings up, and what only it can tell."""

    name: str
    versions: tuple[int, ...] = ()
    findings: tuple[Finding, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def loads(self) -> bool:
        """Whether it will load, as far as can be known without running it."""
        return all(finding.level is not Level.ERROR for finding in self.findings)


@dataclass(frozen=True, slots=True)
class Report:
    """The models of the repositories, by name."""

    models: tuple[ModelReport, ...]

    @property
    def findings(self) -> Iterator[Finding]:
        """All findings, by model."""
        for model in self.models:
            yield from model.findings

    def count(self, level: Level) -> int:
        """The number of findings of a level."""
        return sum(finding.level is level for finding in self.findings)

    def fails(self, *, strict: bool) -> bool:
        """Whether anything was found that counts; with `strict`, warnings do."""
        return bool(self.count(Level.ERROR) or (strict and self.count(Level.WARNING)))
