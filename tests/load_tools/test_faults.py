"""Load tools of others where something is wrong: the words, what is kept, the exit status."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from loadtest.tools import genai_perf, programs, report, soak
from loadtest.tools.outcome import Outcome, from_samples
from loadtest.tools.programs import ToolError, run_program
from loadtest.tools.report import Addresses, Run
from loadtest.tools.soak import gathered

from harness.serving import alive, wait_until

_OUTCOME = from_samples("calls", [(0.1, 2.0), (0.2, 3.0)], [], 1.0)


class _Statistics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"model_stats": []}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Counting:
    """A server that says that nothing has failed, until it is stopped."""

    def __init__(self) -> None:
        self._server = HTTPServer(("127.0.0.1", 0), _Statistics)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.address = f"127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def counting() -> Iterator[Counting]:
    server = Counting()
    yield server
    server.stop()


Main = Callable[[str, Run], str]


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Main:
    """Runs a tool against a server, and gives what it ended with: 0, a status, or words."""

    def main(address: str, run: Run) -> str:
        words = ["--grpc", address, "--http", address, "--out", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", ["tool", *words])
        with pytest.raises(SystemExit) as ended:
            report.main("tool", run)
        return str(ended.value.code)

    return main


def test_no_server_at_the_address_is_told(main: Main, tmp_path: Path) -> None:
    ended = main("127.0.0.1:1", lambda *_: [_OUTCOME])
    assert ended.startswith("tool: the server does not answer http://127.0.0.1:1/v2/models/stats: ")
    assert "Connection refused" in ended
    assert list(tmp_path.iterdir()) == []


def test_reports_that_would_have_no_place_are_told_before_the_load(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "argv", ["tool", "--out", str(tmp_path / "file" / "reports")])
    with pytest.raises(SystemExit):
        report.main("tool", lambda *_: [_OUTCOME])
    assert "Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--out", "file/reports"], "Not a directory"),
        (["--json", "missing/soak.json"], "there is no directory missing"),
        (["--json", "."], ". is a directory"),
    ],
)
def test_soak_tells_of_results_without_a_place_before_its_minutes(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    fault: str,
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["soak", *words])
    monkeypatch.setattr(soak, "soak", lambda *_: pytest.fail("the load has begun"))
    with pytest.raises(SystemExit) as ended:
        soak.main()
    assert ended.value.code == 2
    assert fault in capsys.readouterr().err


def test_results_are_written_though_the_server_died(
    main: Main, counting: Counting, tmp_path: Path
) -> None:
    def run(addresses: Addresses, seconds: float, folder: Path) -> Iterator[Outcome]:
        yield _OUTCOME
        counting.stop()

    ended = main(counting.address, run)
    assert "the server does not answer" in ended
    assert json.loads((tmp_path / "table.json").read_text())["rows"][0]["calls"] == 2
    assert "the server does not answer" in (tmp_path / "report.html").read_text()


def test_parts_before_one_that_fails_are_written(
    main: Main, counting: Counting, tmp_path: Path
) -> None:
    def run(addresses: Addresses, seconds: float, folder: Path) -> Iterator[Outcome]:
        yield _OUTCOME
        raise ToolError("no report for stream.toml: gone")

    ended = main(counting.address, run)
    assert ended == "tool: no report for stream.toml: gone"
    assert len(json.loads((tmp_path / "table.json").read_text())["rows"]) == 1


def test_program_that_does_not_end_is_killed_with_what_it_started(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {file}.new; mv {file}.new {file}; wait"
    with pytest.raises(ToolError, match=r"sh has not ended after 1 s, and was killed"):
        run_program(["sh", "-c", script], 1.0)
    wait_until(lambda: not alive(int(file.read_text())))


def test_program_that_cannot_start_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="tool does not start: No such file or directory"):
        run_program([tmp_path / "tool"], 1.0)


def test_profiles_of_genai_perf_are_kept_where_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program in its place fails for chats, and writes a table for all others."""
    script = (
        '#!/bin/sh\ncase "$*" in *"type chat"*) echo no chat; exit 1;; esac\n'
        'while [ "$1" != --artifact-dir ]; do shift; done\n'
        'mkdir -p "$2/run" && printf "Metric,Value\\nRequest Count (count),10\\n"'
        ' > "$2/run/profile_genai_perf.csv"\n'
    )
    for name in ("genai-perf", "perf_analyzer"):
        (tmp_path / name).write_text(script)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(programs, "INSTALLED", tmp_path)
    found, faults = genai_perf.run_profiles(genai_perf.PROFILES, Addresses("", ""), 10, tmp_path)
    assert set(found) == set(genai_perf.PROFILES) - {"chat"}
    assert faults == ["genai-perf: chat: no chat"]


def test_perf_analyzer_that_exports_nothing_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program in its place exports nothing at first, and one in that of genai-perf needs it.

    It takes no file that is there, as the real one.
    """
    scripts = {
        "perf_analyzer": '#!/bin/sh\n[ ! -e "$2" ] || exit 99\necho >>{0}/runs; : >"$2"\n'
        '[ "$(wc -l <{0}/runs)" = 1 ] || echo some >"$2"\n',
        "genai-perf": "#!/bin/sh\nperf_analyzer --profile-export-file {0}/export || exit 1\n"
        "[ -s {0}/export ] || exit 2\n"
        'while [ "$1" != --artifact-dir ]; do shift; done\n'
        'mkdir -p "$2/run" && printf "Metric,Value\\nRequest Count (count),10\\n"'
        ' > "$2/run/profile_genai_perf.csv"\n',
    }
    for name, script in scripts.items():
        (tmp_path / name).write_text(script.format(tmp_path))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr(programs, "INSTALLED", tmp_path)
    profile = genai_perf.run_profile("gRPC, decoupled", Addresses("", ""), 10, tmp_path)
    assert profile.means == {"Request Count (count)": 10}
    assert (tmp_path / "runs").read_text() == "\n\n"


def test_soak_keeps_what_tools_say_beside_one_that_fails() -> None:
    well, ill = Future[list[Outcome]](), Future[list[Outcome]]()
    well.set_result([_OUTCOME])
    ill.set_exception(ToolError("no report"))
    outcomes, faults = gathered([("ghz", ill), ("locust", well)])
    assert [each.name for each in outcomes] == ["locust: calls"]
    assert faults == ["ghz: no report"]
