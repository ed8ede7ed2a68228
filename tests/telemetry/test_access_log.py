"""The access log: what its lines hold, and that nobody waits for its disk."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.serving import wait_until
from penstock.core.access import Access
from penstock.telemetry import access_log, line_writer
from penstock.telemetry.access_log import AccessLog

ACCESS = Access(
    1.5, "127.0.0.1:7", "HTTP/1.1", "POST", "/v2/models/m/infer", "200", 10, 20, 0.0123456, "m", "r"
)


def written(path: Path, *accesses: Access, as_json: bool = False) -> list[str]:
    path.unlink(missing_ok=True)
    log = AccessLog(str(path), lambda: as_json)
    for one in accesses:
        log.add(one)
    log.close()
    return path.read_text().splitlines()


def test_a_line_of_text(tmp_path: Path) -> None:
    assert written(tmp_path / "log", ACCESS) == [
        "1970-01-01T00:00:01.500000Z 127.0.0.1:7 HTTP/1.1 POST /v2/models/m/infer status=200"
        " received=10 sent=20 ms=12.346 model=m request_id=r"
    ]


def test_a_line_of_json(tmp_path: Path) -> None:
    traced = ACCESS._replace(protocol="gRPC", method="ModelInfer", path="", trace_id="ab")
    (line,) = written(tmp_path / "log", traced, as_json=True)
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:01.500000Z",
        "peer": "127.0.0.1:7",
        "protocol": "gRPC",
        "method": "ModelInfer",
        "status": "200",
        "received": 10,
        "sent": 20,
        "duration_ms": 12.346,
        "model": "m",
        "request_id": "r",
        "trace_id": "ab",
    }


@pytest.mark.contract("L-04")
@given(text=st.text(), as_json=st.booleans())
def test_no_text_of_a_client_begins_a_line(
    text: str, as_json: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    access = ACCESS._replace(path=text, model=text, request_id=text, method=text)
    formatter = access_log._AccessFormatter(lambda: as_json)
    line = formatter.format(access_log._record(access))
    assert len(line.splitlines()) == 1
    if as_json:
        assert json.loads(line)["status"] == "200"


def test_long_texts_of_clients_are_cut(tmp_path: Path) -> None:
    long = ACCESS._replace(path="/" + "p" * 100_000, request_id="i" * 100_000)
    (line,) = written(tmp_path / "log", long)
    assert len(line) < 4096


def test_lines_beyond_the_limit_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that is stuck costs lines, and neither memory nor time."""
    monkeypatch.setattr(line_writer, "MOST_WAITING", 10)
    os.mkfifo(tmp_path / "log")
    reader = os.open(tmp_path / "log", os.O_RDONLY | os.O_NONBLOCK)
    log = AccessLog(str(tmp_path / "log"), lambda: False)
    long = ACCESS._replace(path="/" + "p" * 1000)
    for _ in range(1000):  # more than a pipe holds
        log.add(long)
    assert log.waiting <= 10
    os.set_blocking(reader, True)
    found: list[bytes] = []
    drain = threading.Thread(target=lambda: found.extend(iter(lambda: os.read(reader, 65536), b"")))
    drain.start()
    wait_until(lambda: b"lines missing here: 9" in b"".join(found))
    log.close()
    drain.join(20)
    os.close(reader)
    assert len(b"".join(found).splitlines()) < 200


def test_a_file_that_was_moved_away_is_opened_anew(tmp_path: Path) -> None:
    log = AccessLog(str(tmp_path / "log"), lambda: False)
    log.add(ACCESS)
    wait_until(lambda: (tmp_path / "log").read_text() != "")
    (tmp_path / "log").rename(tmp_path / "old")
    log.reopen()
    log.add(ACCESS._replace(model="after"))
    log.close()
    assert "model=after" in (tmp_path / "log").read_text()
    assert "model=m" in (tmp_path / "old").read_text()


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        AccessLog(str(tmp_path / "nowhere" / "log"), lambda: False)


def test_a_pipe_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    """It is not waited for, as the server would not start."""
    os.mkfifo(tmp_path / "log")
    with pytest.raises(OSError, match="it is a pipe that nobody reads"):
        AccessLog(str(tmp_path / "log"), lambda: False)
