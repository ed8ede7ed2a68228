"""One table or one JSON object, for scripts."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from penstock import cli
from top.stub_server import StubServer, stub_server


def _arguments(server: StubServer) -> list[str]:
    address = str(server.address)
    return ["top", "--url", address, "--http", address, "--interval", "0.1"]


def test_without_a_terminal_one_table_is_printed(
    server: StubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(_arguments(server)) == 0
    out = capsys.readouterr().out
    assert "READY  stub 1.2" in out
    assert out.splitlines()[3].split()[:4] == ["model", "ver", "state", "req/s*"]
    assert out.splitlines()[4].split()[:4] == ["bert", "1", "READY", "0"]
    assert "\x1b" not in out


def test_json_is_one_object(server: StubServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*_arguments(server), "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["server"], found["ready"], found["problems"]) == ("stub 1.2", True, {})
    (model,) = found["models"]
    assert (model["name"], model["version"], model["state"]) == ("bert", "1", "READY")
    assert (model["requests"], model["latency"]) == (0.0, None)


def test_a_number_that_json_does_not_have_is_null(
    server: StubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = 'model="m",version="1"'
    server.answers["/metrics"] = (
        f'own{{{labels}}} NaN\nd_bucket{{{labels},le="1"}} 1\nd_bucket{{{labels},le="+Inf"}} 1\n'
    ).encode()
    assert cli.main([*_arguments(server), "--json", "--sort", "name"]) == 0
    details = json.loads(capsys.readouterr().out)["models"][1]["details"]
    assert details["engine"] == [{"name": "own", "count": None, "rate": None}]
    assert details["distributions"][0]["quantiles"] == {"0.5": 0.5, "0.95": 0.95, "0.99": 0.99}


def test_one_endpoint_is_enough(server: StubServer, capsys: pytest.CaptureFixture[str]) -> None:
    with stub_server() as other:
        gone = str(other.address)
    arguments = ["top", "--url", str(server.address), "--interval", "0.1"]
    assert cli.main([*arguments, "--http", gone]) == 0
    assert "http: connection refused" in capsys.readouterr().out


def test_no_endpoint_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    with stub_server() as server:
        arguments = _arguments(server)
    assert cli.main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("penstock top: no answer from 127.0.0.1:")
    assert "--url names the metrics endpoint of a running server" in err


def test_a_model_that_is_named_is_shown(
    server: StubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*_arguments(server), "bert"]) == 0
    assert "bert" in capsys.readouterr().out


def test_a_model_that_is_not_loaded_is_an_error(
    server: StubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*_arguments(server), "bret"]) == 1
    assert capsys.readouterr().err == "penstock top: the server has not loaded 'bret'\n"


def test_an_interrupt_ends_it(server: StubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock_client.top.report.time.sleep", interrupt)
    assert cli.main(_arguments(server)) == 130


def test_it_imports_nothing_of_the_server() -> None:
    program = (
        "import sys, penstock_client.top.command;"
        "print(*sorted(n for n in sys.modules if n.startswith('penstock')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    rooms = {".".join(name.split(".")[:2]) for name in done.stdout.split()}
    assert rooms == {"penstock_client", "penstock_client.reading", "penstock_client.top"}
