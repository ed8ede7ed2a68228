"""Formats of reports: what people, programs and code hosts read."""

from __future__ import annotations

import dataclasses
import json

import pytest

from penstock.models.checking.findings import Finding, Level, ModelReport, Place, Report
from penstock.models.checking.formats import FORMATS, RULES

_ERROR = Finding(
    model="a",
    level=Level.ERROR,
    rule="refused-configuration",
    place=Place("models/a b/config.pbtxt", 3, 5),
    reason="100% wrong,\nat: all",
    fix="dims: [ 4 ]",
)
_WARNING = Finding(
    model="b",
    level=Level.WARNING,
    rule="git-lfs-pointer",
    place=Place("models/b"),
    reason="a\x1b[31m pointer",
)
_REPORT = Report(
    (
        ModelReport("a", (), (_ERROR,)),
        ModelReport("b", (1, 3), (_WARNING,), ("its tensors",)),
        ModelReport("c", (2,)),
    )
)


def test_text_has_a_line_for_each_model_and_no_control_characters() -> None:
    assert FORMATS["text"](_REPORT, "1").split("\n") == [
        "a: will not load",
        "  models/a b/config.pbtxt:3:5: error: 100% wrong,",
        "    at: all [refused-configuration]",
        "    write: dims: [ 4 ]",
        "b: will load, as far as can be known without loading it, versions 1, 3",
        "  not known: its tensors",
        r"  models/b: warning: a\x1b[31m pointer [git-lfs-pointer]",
        "c: will load, version 2",
        "3 models: 2 will load, 1 will not; 1 error, 1 warning",
    ]


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_name_that_is_not_utf8_is_escaped(name: str) -> None:
    place, reason = Place("models/a/1/\udcff.bin"), "'\udcff.bin' is a pointer"
    found = dataclasses.replace(_WARNING, place=place, reason=reason)
    text = FORMATS[name](Report((ModelReport("a", (1,), (found,)),)), "1")
    assert text.encode()
    assert "\\udcff" in text or "\\xdcff" in text
    if name == "sarif":
        assert '"models/a/1/%FF.bin"' in text
        assert "\\\\udcff.bin' is a pointer" in text


def test_json_has_everything() -> None:
    whole = json.loads(FORMATS["json"](_REPORT, "9.9"))
    assert (whole["version"], whole["errors"], whole["warnings"]) == ("9.9", 1, 1)
    a, b, c = whole["models"]
    assert a["findings"] == [
        {
            "level": "error",
            "rule": "refused-configuration",
            "file": "models/a b/config.pbtxt",
            "line": 3,
            "column": 5,
            "reason": "100% wrong,\nat: all",
            "fix": "dims: [ 4 ]",
        }
    ]
    assert (a["loads"], b["loads"], b["not_known"], c["versions"]) == (
        *(False, True, ["its tensors"]),
        [2],
    )


def test_sarif_names_rules_places_and_levels() -> None:
    whole = json.loads(FORMATS["sarif"](_REPORT, "1"))
    assert whole["version"] == "2.1.0"
    (run,) = whole["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == list(RULES)
    error, warning = run["results"]
    assert rules[error["ruleIndex"]] == error["ruleId"] == "refused-configuration"
    assert error["level"] == "error"
    assert error["message"]["text"].endswith("\nWrite: dims: [ 4 ]")
    assert error["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "models/a%20b/config.pbtxt"},
        "region": {"startLine": 3, "startColumn": 5},
    }
    assert "region" not in warning["locations"][0]["physicalLocation"]


def test_github_gets_an_annotation_for_each_finding() -> None:
    assert FORMATS["github"](_REPORT, "1").split("\n") == [
        "::error file=models/a b/config.pbtxt,line=3,col=5,title=refused-configuration::"
        "a: 100%25 wrong,%0Aat: all%0AWrite: dims: [ 4 ]",
        "::warning file=models/b,title=git-lfs-pointer::b: a\x1b[31m pointer",
    ]


@pytest.mark.parametrize("strict", [False, True])
def test_warnings_count_only_where_that_is_asked(strict: bool) -> None:
    warned = Report(_REPORT.models[1:])
    assert warned.fails(strict=strict) is strict
    assert _REPORT.fails(strict=strict)
    assert not Report(_REPORT.models[2:]).fails(strict=strict)
