"""The installer of programs for tests keeps going where one of them cannot be had."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from programs.install import NotInstalledError, Program, debian, go, main
from programs.places import find


def _write(program: Path) -> None:
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)


def _fail(program: Path) -> None:
    program.write_text("half of it")
    raise NotInstalledError("there is no Go here")


def test_program_is_installed_once(tmp_path: Path) -> None:
    program = Program("tool", "1.0", _write)
    assert program.refresh(tmp_path) == "tool: installed now"
    assert program.refresh(tmp_path) == "tool: installed"


def test_new_version_replaces_the_old_one(tmp_path: Path) -> None:
    Program("tool", "1.0", _write).refresh(tmp_path)
    assert Program("tool", "1.1", _write).refresh(tmp_path) == "tool: installed now"


def test_program_that_cannot_be_installed_is_left_out_with_the_reason(tmp_path: Path) -> None:
    line = Program("tool", "1.0", _fail).refresh(tmp_path)
    assert line == "tool: LEFT OUT, its tests are skipped: there is no Go here"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("install", "reason"),
    [
        (debian("prometheus", "usr/bin/promtool"), "there is no apt-get here"),
        (go("example.org/tool"), "there is no Go here"),
    ],
)
def test_what_would_install_it_is_named_where_it_is_missing(
    install: Callable[[Path], None], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    line = Program("tool", "1.0", install).refresh(tmp_path)
    assert line == f"tool: LEFT OUT, its tests are skipped: {reason}"


def test_program_that_is_not_known_is_named() -> None:
    with pytest.raises(SystemExit, match="there is no program grafana to install"):
        main(["grafana"])


def test_environment_variable_names_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERF_ANALYZER", "/opt/perf_analyzer")
    assert find("perf_analyzer", "PERF_ANALYZER") == "/opt/perf_analyzer"


def test_program_that_is_nowhere_has_no_path() -> None:
    assert find("no-such-program") == ""
