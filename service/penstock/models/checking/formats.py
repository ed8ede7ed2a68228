"""Formats of a check's report: text for people, JSON, SARIF 2.1.0, and GitHub's annotations."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from penstock.models.checking.findings import Finding, Level, ModelReport, Report

Format = Callable[[Report, str], str]
"""The report as text; the second argument is the version of the program."""

RULES: Mapping[str, str] = MappingProxyType(
    {
        "unreadable-configuration": "The configuration cannot be read.",
        "refused-configuration": "The configuration says what the model or its backend refuses.",
        "refused-model": "A file, a version, a backend or a model that it needs is not there.",
        "engine-not-installed": "The package of the model's engine is not installed here.",
        "git-lfs-pointer": "A file is a pointer of Git LFS, whose content was not fetched.",
        "gpu-not-here": "The model is for GPUs, of which there are none here.",
        "instances-beyond-cores": "There are more instances on the CPU than cores.",
        "load-warning": "The load warns of it.",
        "no-dynamic-batching": "The model takes batches, and nothing forms them.",
        "preferred-size-never-forms": "A preferred batch size is out of reach.",
        "repeated-tensor": "A tensor is declared more than once.",
        "unpinned-weights": "A pinned graph has weights in a file that is not pinned.",
        "unreachable-version": "No request can reach a version.",
    }
)
"""Each rule of findings, and what it is about."""

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_PAGE = "https://github.com/penstock/penstock/blob/main/docs/check.md"


def as_text(report: Report, _: str) -> str:
    """A line for each model, with its findings below, and the counts."""
    lines = [line for model in report.models for line in _lines(model)]
    load = sum(model.loads for model in report.models)
    errors, warnings = (report.count(level) for level in Level)
    lines.append(
        f"{_counted(len(report.models), 'model')}: {load} will load,"
        f" {len(report.models) - load} will not; {_counted(errors, 'error')},"
        f" {_counted(warnings, 'warning')}"
    )
    return "\n".join(lines)


def _lines(model: ModelReport) -> Iterator[str]:
    if not model.loads:
        yield f"{_plain(model.name)}: will not load"
    else:
        versions = ", ".join(map(str, model.versions))
        many = "versions" if len(model.versions) > 1 else "version"
        far = ", as far as can be known without loading it" if model.unknown else ""
        yield f"{_plain(model.name)}: will load{far}, {many} {versions}"
    for what in model.unknown:
        yield f"  not known: {_plain(what)}"
    for found in model.findings:
        reason = _plain(found.reason).replace("\n", "\n    ")
        yield f"  {_plain(str(found.place))}: {found.level}: {reason} [{found.rule}]"
        if found.fix:
            yield f"    write: {_plain(found.fix)}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _plain(text: str) -> str:
    """The text without what moves the cursor of a terminal: names may come from a bucket."""
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)


def _utf8(text: str) -> str:
    """The text with the bytes of file names that are not UTF-8 as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def as_json(report: Report, version: str) -> str:
    """The whole report, for programs."""
    whole = {
        "version": version,
        "errors": report.count(Level.ERROR),
        "warnings": report.count(Level.WARNING),
        "models": [
            {
                "name": model.name,
                "loads": model.loads,
                "versions": list(model.versions),
                "not_known": [_utf8(what) for what in model.unknown],
                "findings": [_finding(found) for found in model.findings],
            }
            for model in report.models
        ],
    }
    return json.dumps(whole, indent=2)


def _finding(found: Finding) -> dict[str, Any]:
    file, line, column = found.place
    place = {"file": _utf8(file), "line": line, "column": column}
    said = {"reason": _utf8(found.reason), "fix": _utf8(found.fix)}
    return {"level": str(found.level), "rule": found.rule, **place, **said}


def as_sarif(report: Report, version: str) -> str:
    """SARIF, which code hosts show beside the code."""
    order = list(RULES)
    rules = [
        {"id": rule, "shortDescription": {"text": text}, "helpUri": _PAGE}
        for rule, text in RULES.items()
    ]
    driver = {"name": "penstock check", "version": version, "informationUri": _PAGE, "rules": rules}
    results = [
        {
            "ruleId": found.rule,
            "ruleIndex": order.index(found.rule),
            "level": str(found.level),
            "message": {"text": _told(found)},
            "locations": [{"physicalLocation": _location(found)}],
        }
        for found in report.findings
    ]
    run = {"tool": {"driver": driver}, "results": results}
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _location(found: Finding) -> dict[str, Any]:
    file, line, column = found.place
    uri = quote(file, safe="/:@", errors="surrogateescape")  # its bytes, where it is not UTF-8
    artifact = {"artifactLocation": {"uri": f"file://{uri}" if file.startswith("/") else uri}}
    region = {"region": {"startLine": line, "startColumn": max(column, 1)}} if line else {}
    return artifact | region


def _told(found: Finding) -> str:
    fix = f"\nWrite: {found.fix}" if found.fix else ""
    return _utf8(f"{found.model}: {found.reason}{fix}")


def as_github(report: Report, _: str) -> str:
    """GitHub's workflow commands, which annotate the lines of a pull request."""
    return "\n".join(
        f"::{found.level} {_properties(found)}::{_escaped(_told(found))}"
        for found in report.findings
    )


def _properties(found: Finding) -> str:
    file, line, column = found.place
    place = {"file": _utf8(file), **({"line": line, "col": column} if line else {})}
    given = {**place, "title": found.rule}
    named = (f"{name}={_escaped(str(value), ':,')}" for name, value in given.items())
    return ",".join(named)


def _escaped(text: str, more: str = "") -> str:
    for character in ("%", "\r", "\n", *more):
        text = text.replace(character, f"%{ord(character):02X}")
    return text


FORMATS: Mapping[str, Format] = MappingProxyType(
    {"text": as_text, "json": as_json, "sarif": as_sarif, "github": as_github}
)
