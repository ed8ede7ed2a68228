"""Commands whose output goes to the log, and whose progress is shown on a terminal."""

from __future__ import annotations

import os
import pty
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.core.errors import ModelLoadError
from penstock_backends.python.environment.command import CommandOutput, run_command

_INSTALLER = r"""
import os, sys
print("Collecting numpy", os.isatty(1), os.get_terminal_size().columns if os.isatty(1) else 0)
for done in ("10%", "99%"):
    print(f"\r\x1b[2K  {done}", end="", flush=True)
print("\r  100%")
print("\x1b[32mdone\x1b[0m", flush=True)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """What a user sees, and the server's end."""
    user, server = pty.openpty()
    termios.tcsetwinsize(server, (24, 99))
    yield user, server
    os.close(user)
    os.close(server)


def installing(status: int, terminal: int | None = None) -> list[str]:
    lines: list[str] = []
    command = sys.executable, "-c", _INSTALLER, str(status)
    run_command(lines.append, *command, terminal=terminal)
    return lines


def test_progress_is_shown_on_a_terminal_and_not_logged(terminal: tuple[int, int]) -> None:
    user, server = terminal
    assert installing(0, server) == ["Collecting numpy True 99", "done"]
    seen = os.read(user, 1 << 16).decode()
    assert seen.startswith("\r\x1b[2K")
    assert seen.endswith("\r\x1b[2K")


def test_without_a_terminal_the_command_has_none_either() -> None:
    assert installing(0) == ["Collecting numpy False 0", "done"]


def test_a_failure_holds_the_last_line() -> None:
    with pytest.raises(ModelLoadError, match=r"failed with status 3: done$"):
        installing(3)


def test_a_command_runs_where_it_shall(tmp_path: Path) -> None:
    lines: list[str] = []
    code = "import os; print(os.getcwd(), end='')"
    run_command(lines.append, sys.executable, "-c", code, where=tmp_path)
    assert lines == [str(tmp_path)]


def test_output_is_split_wherever_it_is_cut() -> None:
    text = "one\r\ntwo\n\r 10%\r\x1b[2K 20%\r\nthree\r\n\r 5%"
    for cut in range(len(text)):
        output = CommandOutput()
        assert output.feed(text[:cut]) + output.feed(text[cut:]) == ["one", "two", "three"]
        assert output.progress == " 5%"


def test_progress_is_what_was_written_last() -> None:
    output = CommandOutput()
    seen = [(output.feed(piece), output.progress) for piece in ("a\n", "\r 1%", "\r 2%\r", "\nb")]
    assert seen == [(["a"], ""), ([], " 1%"), ([], " 2%"), ([], "")]
    assert output.end() == ["b"]
