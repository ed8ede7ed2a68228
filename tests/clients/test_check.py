"""`make test-clients` where tools are missing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clients.check import main
from clients.languages import EXAMPLES, Example

_NEEDED = Example("Cobol", "cobol", ("cobc-of-1959",), install="apt-get install gnucobol")
_OPTIONAL = Example("Ada", "ada", ("gnat-of-1980",), install="apt-get install gnat", optional=True)


@pytest.mark.contract("CC-11")
@pytest.mark.parametrize(
    ("arguments", "examples", "ci", "status"),
    [
        ([], [_NEEDED], "", 1),
        ([], [_OPTIONAL], "", 0),
        ([], [_OPTIONAL], "true", 1),
        (["ada"], [_OPTIONAL], "", 1),
        (["ada"], [_NEEDED, _OPTIONAL], "", 1),
    ],
)
def test_a_language_that_is_left_out_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: Sequence[str],
    examples: Sequence[Example],
    ci: str,
    status: int,
) -> None:
    """But an optional one, unless it was asked for or the machine is one that checks."""
    monkeypatch.setenv("CI", ci)
    assert main(arguments, examples) == status
    told = capsys.readouterr().out
    word = "ERROR" if status else "LEFT OUT"
    last = examples[-1]
    reason = f"{last.language}: {word}, since {last.programs[0]} is not installed"
    assert f"{reason}; needed: {last.install}\n" in told


def test_every_language_but_python_says_what_installs_it() -> None:
    """And only those that every machine that checks may lack are optional."""
    assert all(each.install for each in EXAMPLES if each.folder != "python")
    assert [each.language for each in EXAMPLES if each.optional] == ["Ruby"]
