"""Two requirements files mean the same where what they install is the same."""

from __future__ import annotations

from pathlib import Path

from penstock_backends.python.requirements import meaning


def written(directory: Path, text: str, **others: str) -> str:
    directory.mkdir(exist_ok=True)
    for name, content in others.items():
        (directory / f"{name}.txt").write_text(content)
    (directory / "requirements.txt").write_text(text)
    return meaning(directory / "requirements.txt")


def test_the_place_of_a_file_does_not_matter(tmp_path: Path) -> None:
    text = "tabulate==0.9.0  # a table\nx @ https://example.com/x.whl\n"
    assert written(tmp_path / "a", text) == written(tmp_path / "b", text)


def test_the_place_matters_to_paths(tmp_path: Path) -> None:
    lines = ("./package  # of https://example.com", "wheels/x-1.0.whl", "x-1.0.whl", "-e .")
    for line in (*lines, "--find-links ./wheels"):
        assert written(tmp_path / "a", line) != written(tmp_path / "b", line)


def test_files_that_it_names_belong_to_it(tmp_path: Path) -> None:
    text = "-r more.txt\n--constraint=limits.txt\n"
    first = written(tmp_path, text, more="a\n-r requirements.txt", limits="b<2")
    assert written(tmp_path, text, more="a\n-r requirements.txt", limits="b<2") == first
    assert written(tmp_path, text, more="a", limits="b<2") != first
    assert written(tmp_path, text, more="a\n-r requirements.txt", limits="b<3") != first


def test_missing_file_is_left_to_pip(tmp_path: Path) -> None:
    assert written(tmp_path, "-r nowhere.txt") == "-r nowhere.txt"
