"""Completion of commands, options and models, in the shells themselves."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from harness.serving import Served
from penstock import cli
from penstock.cli import completion, usage

_CASES = [
    (["inf"], "infer"),
    (["generate", "--max"], "--max-tokens"),
    (["serve", "--model-rep"], "--model-repository="),
    (["top", "--int"], "--interval"),
    (["demo", "--l"], "--llm"),
    (["perf", "--rou"], "--rounds"),
    (["embed", "--pri"], "--priority"),
    (["generate", "sto"], "story"),
    (["perf", "sto"], "story"),
    (["infer", "copy", "pyproj"], "pyproject.toml"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a file to complete, and the scripts of both shells."""
    (tmp_path / "pyproject.toml").touch()
    for shell, script in {"bash": completion.bash_script(), "zsh": completion.zsh_script()}.items():
        # A busy machine takes longer than people wait for.
        patient = script.replace("timeout 2", "timeout 20").replace("=1", "=10")
        (tmp_path / f"completion.{shell}").write_text(patient)
    return tmp_path


@pytest.fixture
def environment(server: Served) -> dict[str, str]:
    """An environment in which `penstock` is found, with a terminal that does nothing special."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "TERM": "dumb"}


@pytest.mark.parametrize(("words", "completed"), _CASES)
def test_bash_completes(
    folder: Path, environment: dict[str, str], words: list[str], completed: str
) -> None:
    asked = f"""
        source ./completion.bash; COMP_WORDS=(penstock {" ".join(words)}); COMP_CWORD={len(words)}
        _penstock; echo "${{COMPREPLY[@]}}"
    """
    shell = subprocess.run(
        ["bash", "-c", asked],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (shell.stdout.strip(), shell.stderr) == (completed, "")


@pytest.mark.slow
def test_zsh_completes(folder: Path, environment: dict[str, str]) -> None:
    """As people do: words, a tab, and the line that the shell then runs."""
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("zsh is not installed (apt-get install zsh)")
    (folder / ".zshrc").write_text("""
        autoload -U compinit && compinit -u -D; bindkey '^I' complete-word; PROMPT=
        unsetopt prompt_sp zle_bracketed_paste; source ./completion.zsh
        penstock() { print -r -- "ran <$*>" }
    """)
    typed = "".join(f"penstock {' '.join(words)}\t\n" for words, _ in _CASES)
    shell, terminal = pty.openpty()
    process = subprocess.Popen(
        [zsh, "-i"],
        cwd=folder,
        env={**environment, "ZDOTDIR": str(folder)},
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    )
    os.close(terminal)
    os.write(shell, f"{typed}exit\n".encode())
    ran = re.findall(r"ran <(.*)>\r", _read_all(shell))
    assert process.wait(20) == 0
    wanted = [" ".join([*words[:-1], completed]) for words, completed in _CASES]
    assert [line.strip() for line in ran] == wanted


def _read_all(terminal: int) -> str:
    """What comes from a terminal until its other end is closed."""
    read = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # how Linux says so
            data = b""
        if not data:
            os.close(terminal)
            return read.decode(errors="replace")
        read += data


def test_the_command_prints_the_script(capsys: pytest.CaptureFixture[str]) -> None:
    for shell, script in {"bash": completion.bash_script(), "zsh": completion.zsh_script()}.items():
        assert cli.main(["completion", shell]) == 0
        assert capsys.readouterr().out == script


def test_every_command_of_the_help_is_completed() -> None:
    named = re.findall(r"^  ([a-z]+) ", usage.commands_usage(), re.MULTILINE)
    assert sorted(completion.options_of_commands()) == sorted(named)


def test_the_script_for_zsh_names_every_command_and_option() -> None:
    script = completion.zsh_script()
    for command, options in completion.options_of_commands().items():
        assert f"'{command}:" in script
        assert all(option in script for option in options)
