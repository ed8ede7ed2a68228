"""`ModelFindings`: gathers what is found of one model, each with its place and what to write."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from penstock.core.errors import (
    ConfigError,
    InferenceError,
    InternalError,
    as_inference_error,
)
from penstock.models.checking.advice import advice
from penstock.models.checking.cautions import Caution
from penstock.models.checking.config_text import ConfigText
from penstock.models.checking.findings import Finding, Level, ModelReport, Place
from penstock.models.config.pbtxt import PbtxtError
from penstock.models.loading.redaction import redacted

_PATH = re.compile(r"[^\s'\":(),;]*/[^\s'\":(),;]+")
_LINE = re.compile(r"line (\d+)(?:,? column (\d+))?")
_LARGE = 1 << 20
"""Bytes of a file that is not searched: it may be weights."""
_PYTHON = re.compile(r"\((\w[\w.]*\.py), line (\d+)\)")


class ModelFindings:
    """The findings of one model so far.

    `path` is its folder and `config` its configuration file, where there are any; `shown` is what
    its repository is called.
    """

    def __init__(self, name: str, path: Path | None, config: Path | None, shown: str) -> None:
        self._name, self._path, self._config, self._shown = name, path, config, shown
        self._findings: list[Finding] = []
        self._open: list[str] = []
        self._text: ConfigText | None = None

    def refuse(self, error: BaseException, rule: str = "") -> None:
        """Add the error of a load; under a `rule` it is one of this machine only, a warning."""
        known = redacted(_as_told(error))
        reason = error.problem if isinstance(error, PbtxtError) else known.message
        level = Level.WARNING if rule else Level.ERROR
        self._add(level, rule or _rule_of(error), reason, advice(known.message, self._path), error)

    def warn(self, caution: Caution) -> None:
        """Add a caution."""
        self._add(Level.WARNING, caution.rule, caution.reason, caution.fix)

    def keep_log(self, texts: list[str]) -> None:
        """Add what the load logs as warnings, but for what is an error already."""
        errors = [found.reason for found in self._findings if found.level is Level.ERROR]
        for text in texts:
            if not any(reason in text for reason in errors):
                self._add(Level.WARNING, "load-warning", text, advice(text, self._path))

    def leave_open(self, what: str) -> None:
        """Note what only a load can tell."""
        if (told := self._told(what)) not in self._open:
            self._open.append(told)

    def report(self, versions: tuple[int, ...]) -> ModelReport:
        """All of it; `versions` are those that a load would bring up."""
        order = [*Level]
        findings = sorted(self._findings, key=lambda f: (order.index(f.level), f.place[1:]))
        return ModelReport(self._name, versions, tuple(findings), tuple(self._open))

    # -- places -------------------------------------------------------------------------------

    def _add(
        self, level: Level, rule: str, reason: str, fix: str, cause: BaseException | None = None
    ) -> None:
        found = Finding(
            model=self._name,
            level=level,
            rule=rule,
            place=self._place(reason, cause),
            reason=self._told(reason),
            fix=self._told(fix),
            cause=cause,
        )
        if found not in self._findings:
            self._findings.append(found)

    def _place(self, reason: str, cause: BaseException | None) -> Place:
        if isinstance(cause, PbtxtError) and self._config is not None:
            if cause.line:
                return Place(self._name_of(self._config), cause.line, cause.column)
            return self._in_config(reason)
        if (place := self._of_file(reason)) is not None:
            return place
        if self._config is not None:
            return self._in_config(reason)
        return Place(self._name_of(self._path) if self._path is not None else self._name)

    def _in_config(self, reason: str) -> Place:
        assert self._config is not None
        if not self._config.is_file():  # reading a pipe would block
            return Place(self._name_of(self._config))
        if self._text is None:
            self._text = ConfigText(self._config.read_bytes())
        return Place(self._name_of(self._config), *self._text.place_of(reason))

    def _of_file(self, reason: str) -> Place | None:
        """The place in a file of the model that the reason names, besides its configuration."""
        if self._path is None:
            return None
        if code := _PYTHON.search(reason):
            found = sorted(self._path.glob(f"*/{code[1]}"))
            return Place(self._name_of(found[0]), int(code[2]), 1) if found else None
        for text in _PATH.findall(reason):
            path = Path(text)
            if path != self._config and path.is_relative_to(self._path) and path.is_file():
                return Place(self._name_of(path), *_line_in(path, reason))
        return None

    def _told(self, text: str) -> str:
        """A text without the folder that a model was fetched into."""
        if "://" not in self._shown or self._path is None:
            return text
        return text.replace(str(self._path.parent), self._shown.rstrip("/"))

    def _name_of(self, path: Path) -> str:
        """How a file of the model is called: from here on, or by the address of its repository."""
        root = self._path.parent if self._path is not None else path
        inside = path.relative_to(root) if path.is_relative_to(root) else path
        if "://" in self._shown:
            return f"{self._shown.rstrip('/')}/{inside}"
        return os.path.join(self._shown, inside)


def _as_told(error: BaseException) -> InferenceError:
    """The error as a load tells it: what the disk says is repeated without its class."""
    return InternalError(str(error)) if isinstance(error, OSError) else as_inference_error(error)


def _rule_of(error: BaseException) -> str:
    """The kind of an error, by its class."""
    if isinstance(error, PbtxtError):
        return "unreadable-configuration"
    return "refused-configuration" if isinstance(error, ConfigError) else "refused-model"


def _line_in(path: Path, reason: str) -> tuple[int, int]:
    """Line and column of what the reason is about: as it says, or of the key that it quotes."""
    if found := _LINE.search(reason):
        return int(found[1]), int(found[2] or 1)
    if path.stat().st_size > _LARGE:
        return 1, 1
    for key in re.findall(r"'([\w.-]+)'", reason):
        for number, line in enumerate(path.read_text(errors="replace").split("\n"), 1):
            if (column := line.find(json.dumps(key))) >= 0:
                return number, column + 1
    return 1, 1
