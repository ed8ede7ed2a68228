"""Programs of the stack: how they start, and that they end."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from deploy.observability.programs import StackError, port, program
from harness.serving import alive

_NOWHERE = "http://127.0.0.1:9/"


def test_program_ends_with_its_block(tmp_path: Path) -> None:
    with program("sleep", ["sleep", "60"], tmp_path) as started:
        assert started.process.poll() is None
    assert not alive(started.process.pid)


def test_last_lines_of_a_program_that_ended_are_told(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no such option')"]
    with (
        program("server", command, tmp_path) as started,
        pytest.raises(StackError, match="server ended:\nno such option"),
    ):
        started.wait_ready(_NOWHERE)


def test_program_that_does_not_get_ready_is_told(tmp_path: Path) -> None:
    with (
        program("sleep", ["sleep", "60"], tmp_path) as started,
        pytest.raises(StackError, match="sleep is not ready"),
    ):
        started.wait_ready(_NOWHERE, seconds=0.0)


def test_program_gets_variables(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os; print(os.environ['PORT'])"]
    with program("print", command, tmp_path, {"PORT": "7"}) as started:
        started.process.wait(20)
        assert started.last_lines() == "7"


def test_port_in_use_gives_way_to_a_free_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOME_PORT", raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        usual = taken.getsockname()[1]
        assert port("SOME_PORT", usual) not in (usual, 0)


def test_port_of_the_environment_is_taken_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PORT", "1234")
    assert port("SOME_PORT", 80) == 1234
