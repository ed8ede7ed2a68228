"""The audit log: its lines, its rotation, and a disk that is full."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.serving import wait_until
from penstock.core.access import Access, AuditEvent, event_of_call
from penstock.telemetry.audit_log import AuditLog
from penstock.telemetry.log_file import KEPT

EVENT = AuditEvent(1.5, "RepositoryModelLoad", "OK", "alice", "127.0.0.1:7", "m")


def written(path: Path, *events: AuditEvent, max_bytes: int = 0) -> list[dict[str, str]]:
    log = AuditLog(str(path), max_bytes)
    for event in events:
        log.add(event)
    log.close()
    assert log.lost == 0
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_says_who_what_and_the_result(tmp_path: Path) -> None:
    assert written(tmp_path / "audit", EVENT) == [
        {
            "time": "1970-01-01T00:00:01.500000Z",
            "caller": "alice",
            "peer": "127.0.0.1:7",
            "what": "RepositoryModelLoad",
            "target": "m",
            "result": "OK",
        }
    ]


def test_what_is_not_known_is_left_out(tmp_path: Path) -> None:
    (line,) = written(tmp_path / "audit", AuditEvent(0.0, "access-policy", "changed"))
    assert line.keys() == {"time", "what", "result"}


def test_a_request_of_http_is_its_method_and_path() -> None:
    access = Access(2.0, "p", "HTTP/1.1", "POST", "/v2/logging", "403", 1, 2, 0.1)
    assert event_of_call(access, "bob") == AuditEvent(2.0, "POST /v2/logging", "403", "bob", "p")


def test_no_text_of_a_client_begins_a_line_or_is_very_long(tmp_path: Path) -> None:
    forged = EVENT._replace(target='m\n{"caller":"root"}', caller="c" * 100_000)
    (line,) = written(tmp_path / "audit", forged)
    assert line["target"] == forged.target
    assert len(line["caller"]) < 2000


def test_a_file_of_full_size_is_renamed_and_the_last_ones_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "audit"
    events = [EVENT._replace(target=f"{number}") for number in range(100)]
    last = written(file, *events, max_bytes=500)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["audit", *(f"audit.{number}" for number in range(1, KEPT + 1))]
    assert last[-1]["target"] == "99"
    texts = [(tmp_path / name).read_text() for name in names[1:]]
    assert all(500 <= len(text) < 1000 for text in texts)
    found = [
        json.loads(line)["target"]
        for text in (*texts[::-1], file.read_text())
        for line in text.splitlines()
    ]
    assert found == [f"{number}" for number in range(100 - len(found), 100)]


def test_a_file_that_cannot_be_renamed_goes_on(tmp_path: Path) -> None:
    for number in range(1, KEPT + 1):
        (tmp_path / f"audit.{number}" / "not empty").mkdir(parents=True)
    events = [EVENT._replace(target=f"{number}") for number in range(20)]
    assert len(written(tmp_path / "audit", *events, max_bytes=500)) == 20


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_costs_lines_which_are_counted(capfd: pytest.CaptureFixture[str]) -> None:
    log = AuditLog("/dev/full")
    for _ in range(10):
        log.add(EVENT)
    wait_until(lambda: log.lost == 10)
    log.reopen()
    log.add(EVENT)
    wait_until(lambda: log.lost == 11)
    log.close()
    assert "No space left on device" in capfd.readouterr().err
