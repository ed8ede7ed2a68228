"""Lines of the log in JSON, and the fields of lines about models and requests."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.values import scoped
from penstock.core.log.log_fields import FIELDS, request_fields
from penstock.core.request import InferenceRequest
from penstock.core.timeline import Trace
from penstock.settings import LogSettings
from penstock.telemetry.log_lines import formatter

JSON = LogSettings(format="json")


def record(message: str, level: int = logging.INFO, /, **attributes: Any) -> logging.LogRecord:
    made = logging.LogRecord(
        "penstock.test", level, "/code/server.py", 12, "%s", (message,), attributes.pop("exc", None)
    )
    made.__dict__.update(attributes)
    return made


def parsed(made: logging.LogRecord, settings: LogSettings = JSON) -> dict[str, Any]:
    line = formatter(settings).format(made)
    assert len(line.splitlines()) == 1
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", line)
    values: dict[str, Any] = json.loads(line)
    return values


def test_a_line_of_json_says_when_where_and_what() -> None:
    made = record("Started HTTPService")
    made.created = 1.5
    assert list(parsed(made).items()) == [
        ("time", "1970-01-01T00:00:01.500000Z"),
        ("level", "INFO"),
        ("file", "server.py"),
        ("line", 12),
        ("pid", os.getpid()),
        ("logger", "penstock.test"),
        ("message", "Started HTTPService"),
    ]


@pytest.mark.parametrize("form", ["default", "json"])
def test_no_text_turns_the_direction_of_a_line(form: Literal["default", "json"]) -> None:
    """Else what follows it reads backwards on a terminal, and says something else."""
    turning = "\u061c\u200e\u200f\u202a\u202e\u2066\u2069"
    line = formatter(LogSettings(format=form)).format(record(f"unknown model {turning}"))
    assert line.isascii()
    assert all(f"\\u{ord(mark):04x}" in line for mark in turning)


def test_times_of_json_are_of_rfc_3339() -> None:
    made = record("now")
    read = datetime.fromisoformat(parsed(made)["time"])
    assert read.tzinfo == UTC
    assert abs(read.timestamp() - made.created) < 1e-5


@pytest.mark.parametrize(
    ("level", "name"),
    [(9, "VERBOSE"), (10, "VERBOSE"), (20, "INFO"), (30, "WARNING"), (40, "ERROR"), (50, "ERROR")],
)
def test_each_level_has_a_name_in_json(level: int, name: str) -> None:
    assert parsed(record("m", level))["level"] == name


def test_a_traceback_is_a_field_of_json() -> None:
    try:
        raise ValueError("cause\nE0101 forged")
    except ValueError:
        made = record("it failed", logging.ERROR, exc=sys.exc_info())
    line = parsed(made)
    assert line["message"] == "it failed"
    assert line["traceback"].startswith("Traceback (most recent call last):\n")
    assert line["traceback"].endswith("ValueError: cause\nE0101 forged")


def test_a_traceback_of_triton_is_a_field_of_json() -> None:
    line = parsed(record("ValueError: no\n\nAt:\n  /m/1/model.py(3): execute\n", logging.ERROR))
    assert (line["message"], line["traceback"]) == (
        "ValueError: no",
        "At:\n  /m/1/model.py(3): execute",
    )


def test_a_table_is_one_line_of_json() -> None:
    assert parsed(record("\n+---+\n| A |\n+---+\n", verbatim=True))["message"] == (
        "+---+\n| A |\n+---+"
    )


@pytest.mark.contract("L-04")
@given(st.text(), st.booleans())
def test_no_text_leaves_its_line_of_json(text: str, escape: bool) -> None:
    fields = dict.fromkeys(FIELDS, text)
    line = parsed(record(text, logging.INFO, **fields), LogSettings(format="json", escape=escape))
    assert line["level"] == "INFO"
    assert {"time", "file", "line", "pid", "logger", "message"} <= set(line)


@pytest.mark.contract("L-04")
@given(st.text())
def test_no_field_leaves_its_line_of_text(text: str) -> None:
    line = formatter(LogSettings(format="ISO8601")).format(record("m", request_id=text))
    assert len(line.splitlines()) == 1


def test_a_line_about_a_request_has_its_ids() -> None:
    request = InferenceRequest("m", id="r-1")
    assert request_fields(request, "3") == {"model": "m", "version": "3", "request_id": "r-1"}
    timeline = Trace(0).root
    fields = request_fields(scoped(request, timeline=timeline), "3")
    assert fields["trace_id"] == f"{timeline.trace.trace_id:032x}"
    assert fields["span_id"] == f"{timeline.span_id:016x}"
    assert parsed(record("failed", logging.INFO, **fields)).items() >= fields.items()
    text = formatter(LogSettings()).format(record("failed", logging.INFO, **fields))
    trace = f"trace_id={fields['trace_id']} span_id={fields['span_id']}"
    assert text.endswith(f'] "failed" model=m version=3 request_id=r-1 {trace}')


def test_a_long_id_of_a_request_is_cut() -> None:
    fields = request_fields(InferenceRequest("m", id="x" * 100_000))
    assert len(fields["request_id"]) < 1200
