"""Checks of the interpreter of an environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.core.errors import ModelLoadError
from penstock_backends.python.environment.environment import check_python


def environment(directory: Path, script: str) -> Path:
    """An environment whose interpreter is this shell script."""
    python = directory / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    return directory


@pytest.mark.contract("PY-35")
def test_python_with_numpy_will_do(tmp_path: Path) -> None:
    own = environment(tmp_path, f'exec {sys.executable} "$@"')
    assert check_python(own) == own / "bin" / "python"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("printf '3 10'", r"is Python 3\.10; models need 3\.11 or newer"),
        ("printf '2 7'; exit 1", r"is Python 2\.7; models need 3\.11 or newer"),
        (
            "printf '3 12'; echo 'ModuleNotFoundError: numpy' >&2; exit 1",
            "cannot import numpy: ModuleNotFoundError: numpy",
        ),
        ("printf 'welcome\\n3 10'", r"is Python 3\.10; models need 3\.11 or newer"),
        ("exit 3", "cannot be run: it printed no error"),
    ],
)
def test_unfit_environment_is_refused_with_a_reason(tmp_path: Path, script: str, why: str) -> None:
    with pytest.raises(ModelLoadError, match=why):
        check_python(environment(tmp_path, script))


def test_broken_interpreter_is_refused_with_a_reason(tmp_path: Path) -> None:
    own = environment(tmp_path, "")
    (own / "bin" / "python").chmod(0o644)
    with pytest.raises(ModelLoadError, match=r"cannot be run: .*Permission denied"):
        check_python(own)


def test_environment_without_a_python_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="has no bin/python"):
        check_python(tmp_path)
