"""Commands that other packages bring: where they are found, and what is said without them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from penstock import cli
from penstock.cli import completion
from penstock.cli.installed_commands import OF_CLIENT, installed_commands

_MODULE = """
from argparse import ArgumentParser

class Command:
    summary = "Greet a server."
    of_model = False

    def run(self, arguments):
        print("hello", *arguments)
        return 7

    def parser(self):
        made = ArgumentParser()
        made.add_argument("--loudly")
        return made

GREET = Command()
"""


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package is installed beside the server."""
    monkeypatch.setattr(sys, "path", [])


@pytest.fixture
def greeting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with the command `greet`."""
    (tmp_path / "greeting.py").write_text(_MODULE)
    package = tmp_path / "greeting-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Name: greeting\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[penstock.commands]\ngreet = greeting:GREET\n")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("name", OF_CLIENT)
def test_a_command_of_the_client_package_says_what_to_install(
    name: str, alone: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([name, "m"]) == 1
    said = capsys.readouterr().err
    assert f"'{name}' is one of the commands that ask a running server" in said
    assert "pip install penstock-client" in said


def test_help_without_the_client_package_says_where_its_commands_are(
    alone: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert re.findall(r"^  ([a-z]+) ", text, re.MULTILINE) == [
        *("serve", "check", "demo", "plan", "import", "pull", "list", "remove"),
        *("keys", "sagemaker", "completion"),
    ]
    assert "pip install penstock-client" in text


def test_completion_without_the_client_package_has_the_commands_of_the_server(
    alone: None,
) -> None:
    assert [*completion.options_of_commands()] == [
        *("serve", "sagemaker", "check", "plan", "demo", "import", "pull", "list", "remove"),
        *("keys", "completion"),
    ]


def test_a_mistyped_command_of_the_client_package_gets_the_right_one(
    alone: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["genrate"]) == 1
    assert capsys.readouterr().err.endswith("Did you mean 'generate'?\n")


def test_a_command_of_any_package_is_run(
    greeting: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["greet", "you"]) == 7
    assert capsys.readouterr().out == "hello you\n"


def test_a_command_of_any_package_stands_in_help_and_completion(
    greeting: None, capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main(["--help"])
    assert "  greet      Greet a server.\n" in capsys.readouterr().out
    assert completion.options_of_commands()["greet"] == ["--help", "--loudly"]


def test_commands_of_the_client_package_are_those_that_the_server_knows() -> None:
    assert tuple(installed_commands()) == OF_CLIENT
