"""What `make test` runs: no test is in none of its runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import whole_run
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
    marked = [folder for folder, mark in FOLDERS.items() if mark == "conformance"]
    assert sorted(whole_run.CONFORMANCE) == sorted(marked)
    by_hand = "mark." + "conformance"
    assert [file for file in (ROOT / "tests").rglob("*.py") if by_hand in file.read_text()] == []


def test_gates_have_the_tests_that_other_runs_leave_out() -> None:
    marked = [f"tests/{name}" for name, mark in FOLDERS.items() if mark == "gate"]
    assert sorted(_variable("GATE_TESTS")) == sorted(marked)


def test_last_of_the_measured_runs_has_what_the_others_lack() -> None:
    *others, last = whole_run.MEASURED.values()
    assert last == ("",)
    [step] = [step for step in whole_run.steps() if step.name == list(whole_run.MEASURED)[-1]]
    left_out = {word for word in step.command if word.startswith("--ignore=")}
    elsewhere = [*(folder for run in others for folder in run), whole_run.SIMULATION]
    assert left_out == {f"--ignore=tests/{folder}" for folder in elsewhere}


def test_folders_of_the_runs_exist() -> None:
    measured = whole_run.MEASURED.values()
    runs = (whole_run.CONFORMANCE, whole_run.COMPILED, [whole_run.SIMULATION], *measured)
    folders = [ROOT / "tests" / folder for run in runs for folder in run]
    assert [folder for folder in folders if not folder.exists()] == []
    assert [name for name in _variable("GATE_TESTS") if not (ROOT / name).exists()] == []


def test_a_step_waits_for_what_it_needs_and_not_for_what_failed(tmp_path: Path) -> None:
    done = [tmp_path / name for name in ("first", "second", "third")]
    steps = [
        whole_run.Step("first", ["touch", str(done[0])]),
        whole_run.Step("fails", ["false"]),
        whole_run.Step("second", ["cp", str(done[0]), str(done[1])], ["first"]),
        whole_run.Step("third", ["touch", str(done[2])], ["fails"]),
    ]
    assert whole_run.SideBySide(steps, tmp_path).run() == ["fails", "third"]
    assert [file.exists() for file in done] == [True, True, False]


def test_what_a_step_needs_comes_before_it() -> None:
    begun: set[str] = set()
    for step in whole_run.steps():
        assert set(step.needs) <= begun
        begun.add(step.name)
