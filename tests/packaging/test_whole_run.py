"""What `make test` runs: no test is in none of its runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness.folder_marks import FOLDERS

ROOT = Path(__file__).parents[2]


def _variable(name: str) -> list[str]:
    """The words of one of the Makefile's variables."""
    show = f"show: ; @echo $({name})"
    command = ["make", "--silent", f"--eval={show}", "show"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_run_of_conformance_has_the_folders_that_others_leave_out() -> None:
    """The others run what is `not conformance`, a mark that only folders give."""
    marked = [f"tests/{folder}" for folder, mark in FOLDERS.items() if mark == "conformance"]
    assert sorted(_variable("CONFORMANCE_TESTS")) == sorted(marked)
    by_hand = "mark." + "conformance"
    assert [file for file in (ROOT / "tests").rglob("*.py") if by_hand in file.read_text()] == []


def test_gates_have_the_tests_that_other_runs_leave_out() -> None:
    marked = [f"tests/{name}" for name, mark in FOLDERS.items() if mark == "gate"]
    assert sorted(_variable("GATE_TESTS")) == sorted(marked)


def test_folders_of_the_runs_exist() -> None:
    names = ("GATE_TESTS", "CONFORMANCE_TESTS", "CLIENT_TESTS", "COMPILED_TESTS")
    folders = [folder for name in names for folder in _variable(name)]
    assert folders
    assert [folder for folder in folders if not (ROOT / folder).exists()] == []
