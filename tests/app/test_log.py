"""What a server writes where, and what becomes of it when its disk is full."""

import resource
import urllib.request
from pathlib import Path

import pytest

from harness.serving import Served, serving


def status(server: Served, path: str) -> int:
    with urllib.request.urlopen(f"http://{server.http}{path}", timeout=60) as reply:
        return int(reply.status)


@pytest.mark.contract("L-05")
def test_a_full_disk_costs_lines_of_the_log_and_no_request(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    file, console = tmp_path / "log", tmp_path / "console"
    with serving(tmp_path / "models", console, f"--log-file={file}", "--log-verbose=1") as server:
        assert status(server, "/v2/health/live") == 200
        assert '"HTTP request: GET /v2/health/live"' in file.read_text()
        assert console.read_text() == ""
        room, most = len(file.read_bytes()), resource.RLIM_INFINITY
        # The console is a file too, and its one line is shorter than the log before.
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (room, most))
        for _ in range(50):
            assert status(server, "/v2/health/live") == 200
        [line] = console.read_text().splitlines()
        assert line.endswith(f"log file '{file}' is not writable: File too large; lost lines: 1\"")
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (most, most))
        assert status(server, "/v2/health/ready") == 200
    lines = file.read_bytes()[room:].decode().splitlines()
    assert "lines missing here: 50, since the file was not writable: File too large" in lines[0]
    assert lines[1].endswith('"HTTP request: GET /v2/health/ready"')
    assert len(console.read_text().splitlines()) == 2  # and the note of the signal
