"""Commands: serve, demo, help and version."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from cli.reading import SERVED
from harness import recorded
from penstock import __version__, cli
from penstock.cli.flags import FLAGS
from penstock.cli.unsupported import UNSUPPORTED_OPTIONS
from penstock.settings import Settings
from penstock.settings.fields import default_value


@pytest.mark.contract("CL-01")
def test_serve_and_tritonserver_are_the_same(served: list[Settings]) -> None:
    arguments = ["--model-repository", "r", "--http-port", "9000"]
    assert cli.tritonserver(arguments) == SERVED
    assert cli.main(["serve", *arguments]) == SERVED
    assert served[0] == served[1]


@pytest.mark.parametrize("row", UNSUPPORTED_OPTIONS, ids=lambda row: row.flag)
def test_rows_of_the_table_of_missing_features_name_options_and_fields(row: Any) -> None:
    assert row.flag.split()[0] in FLAGS
    default_value(row.field)


@pytest.mark.contract("CL-01")
@recorded.needs_answers
def test_every_recorded_option_of_tritonserver_is_known() -> None:
    text = recorded.log("tritonserver-help.txt")
    names = set(re.findall(r"^  --([\w-]+)", text, re.MULTILINE))
    assert names - {"help"} <= FLAGS.keys()


@pytest.mark.contract("CL-01")
def test_help_lists_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.tritonserver(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  --{name}" in text for name in FLAGS)


def test_an_option_without_a_command_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--model-repository=r"]) == 1
    assert "Did you mean 'penstock serve --model-repository=r'?" in capsys.readouterr().err


def test_an_empty_command_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([""]) == 1
    assert "unknown command ''" in capsys.readouterr().err


def test_h_alone_is_help() -> None:
    assert cli.main(["serve", "-h"]) == 0


def test_help_comes_before_later_mistakes_and_after_earlier_ones() -> None:
    assert cli.tritonserver(["--help", "--nope"]) == 0
    assert cli.tritonserver(["--nope", "--help"]) == 1


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {__version__}\n"


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["nope"]) == 1
    assert capsys.readouterr().err.endswith("penstock: unknown command 'nope'\n")


def test_a_mistyped_command_gets_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sreve"]) == 1
    assert capsys.readouterr().err.endswith("unknown command 'sreve'\nDid you mean 'serve'?\n")


def test_a_mistyped_option_gets_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.tritonserver(["--model_repository=r"]) == 1
    assert capsys.readouterr().err.endswith(
        "tritonserver: unrecognized option '--model_repository=r'\n"
        "Did you mean '--model-repository'?\n"
    )


def pretend_demo(monkeypatch: pytest.MonkeyPatch, write: Callable[..., None]) -> None:
    demo = ModuleType("penstock.demo")
    demo.write_demo = write  # type: ignore[attr-defined]
    demo.DemoError = RuntimeError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "penstock.demo", demo)


def test_demo_writes_to_the_given_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[tuple[Path, str]] = []
    pretend_demo(monkeypatch, lambda path, *, llm, report: written.append((path, llm)))
    assert cli.main(["demo", "somewhere", "--llm", "vllm"]) == 0
    assert written == [(Path("somewhere"), "vllm")]


def test_demo_prints_the_reason_of_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no space")

    pretend_demo(monkeypatch, fail)
    assert cli.main(["demo", "somewhere"]) == 1
    assert capsys.readouterr().err == "penstock demo: no space\n"


@pytest.mark.parametrize("command", [["--help"], ["--version"], ["serve", "--help"]], ids=" ".join)
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    """A fresh interpreter, since this one has imported everything."""
    program = (
        "import sys, penstock.cli; status = penstock.cli.main(sys.argv[1:]);"
        "print(*sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *command], capture_output=True, text=True, check=True
    )
    heavy = "asyncio google grpc numpy onnxruntime openvino prometheus_client starlette uvloop"
    assert not set(done.stderr.split()) & set(heavy.split())


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["plan", "--also=a=1GB"]])
def test_nothing_is_said_of_a_reader_that_went_away(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "penstock", *arguments],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")
