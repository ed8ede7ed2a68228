"""Commands whose output cannot be written, and those that are interrupted: one line, or none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from models.checking.house import write_model
from models.checking.refused_rows import IDENTITY

_FULL = "penstock: the output cannot be written: No space left on device\n"
_INTERRUPTED = """
import sys

class Interrupted:
    def find_spec(self, name, *_):
        if name == sys.argv[1]:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupted())
from penstock.cli import main
sys.exit(main(sys.argv[2:]))
"""
"""A command that Ctrl-C ends while a module is imported."""


def _to_a_full_disk(*arguments: str, **variables: str) -> tuple[int, str]:
    """Status and errors of a command."""
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            env=kept | variables,
            text=True,
            timeout=60,
        )
    return done.returncode, done.stderr


@pytest.mark.parametrize("variables", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "not"])
@pytest.mark.parametrize(
    "command", ["--version", "serve --help", "plan --also=a=1GB", "completion bash", "check models"]
)
def test_a_full_disk_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, variables: Mapping[str, str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_model(tmp_path / "models", "m", IDENTITY)
    assert _to_a_full_disk(*command.split(), **variables) == (2, _FULL)


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("penstock.cli.arguments", "check models"),
        ("penstock.cli.plan", "plan --also=a=1GB"),
        ("penstock_client.commands.running", "infer m"),
        ("huggingface_hub.utils", "list"),
    ],
)
def test_an_interrupt_is_not_told_at_all(module: str, command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, module, *command.split()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
