"""The last words of a start that failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.app.failed_start import failed_start, one_line
from penstock.core.errors import InternalError, InvalidRequestError, UnavailableError
from penstock.settings import ModelControlMode, ModelFile, RepositorySettings

HEAD = "creating server: Internal - failed to load all models"


def settings(tmp_path: Path, **changed: Any) -> RepositorySettings:
    return RepositorySettings(paths=(str(tmp_path),), **changed)


def test_each_model_that_failed_has_a_line_with_its_folder_code_and_reason(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    caused = InvalidRequestError("wrapped")
    caused.__cause__ = ValueError("the cause\n  in two lines")
    own = InternalError("load failed for model 'c': version 1 is at UNAVAILABLE state: broken;\n")
    failures = {"b": caused, "a": UnavailableError("busy"), "c": own}
    assert str(failed_start(failures, settings(tmp_path))).splitlines() == [
        HEAD,
        "a: Unavailable: busy",
        f"{tmp_path / 'b'}: Invalid argument: the cause in two lines",
        "c: version 1 is at UNAVAILABLE state: broken;",
    ]


def test_the_only_model_that_was_named_has_triton_s_line(tmp_path: Path) -> None:
    explicit = {"control_mode": ModelControlMode.EXPLICIT}
    named = settings(tmp_path, startup_models=("a",), **explicit)
    failures = {"a": UnavailableError("busy\nnow")}
    assert str(failed_start(failures, named)) == "creating server: Unavailable - busy now"
    all_of_them = settings(tmp_path, startup_models=("*",), **explicit)
    assert str(failed_start(failures, all_of_them)).startswith(HEAD)
    both = {**failures, "b": UnavailableError("x")}
    assert str(failed_start(both, named)).startswith(HEAD)


def test_files_that_were_given_are_told_by_their_own_paths(tmp_path: Path) -> None:
    file = ModelFile("m", {"1/model.onnx": Path("/home/me/net.onnx")}, {})
    given = settings(tmp_path, files=(file,))
    error = InvalidRequestError(f"cannot read {tmp_path}/m/1/model.onnx")
    assert str(failed_start({"m": error}, given)).splitlines() == [
        HEAD,
        "model 'm': Invalid argument: cannot read /home/me/net.onnx",
    ]


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("a\n b", "a b"),
        (
            "why\n\nAt:\n  /m/model.py(3): initialize\n  /x(4): y\n",
            "why (at /m/model.py(3): initialize)",
        ),
        ("why\n\nAt:\n  /m/model.py(3): initialize\n;", "why (at /m/model.py(3): initialize);"),
        ("why\n\nAt:\n", "why"),
    ],
)
def test_of_a_traceback_the_innermost_place_is_kept(message: str, line: str) -> None:
    assert one_line(message) == line
