"""Requirements files have the same fingerprint where they install the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock_backends.python.environment.requirements import fingerprint


def written(directory: Path, text: str, **others: str) -> str:
    directory.mkdir(exist_ok=True)
    for name, content in others.items():
        (directory / f"{name}.txt").write_text(content)
    (directory / "requirements.txt").write_text(text)
    return fingerprint(directory / "requirements.txt")


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


@pytest.mark.parametrize(
    "line",
    [
        "./wheels/x-1.0.whl",
        "wheels/x-1.0.whl ; python_version > '3'  # ours",
        "x @ file://{place}/wheels/x-1.0.whl#sha256=0",
        "--find-links=wheels/",
        "-f ./wheels",
        "-r more.txt",
        "./wheels/x-1.0.whl[more,most]",
        "x-1.0.whl",
    ],
)
def test_package_that_has_been_replaced_is_another(tmp_path: Path, line: str) -> None:
    line = line.format(place=tmp_path)
    wheel = tmp_path / "wheels" / "x-1.0.whl"
    wheel.parent.mkdir()
    (tmp_path / wheel.name).symlink_to(wheel)
    wheel.write_bytes(b"first")
    first = written(tmp_path, line, more="wheels/x-1.0.whl")
    assert written(tmp_path, line, more="wheels/x-1.0.whl") == first
    os.utime(wheel, ns=(0, 1))
    later = written(tmp_path, line, more="wheels/x-1.0.whl")
    wheel.write_bytes(b"longer than the first")
    os.utime(wheel, ns=(0, 1))
    assert len({first, later, written(tmp_path, line, more="wheels/x-1.0.whl")}) == 3


def test_package_that_is_not_there_yet_is_left_to_pip(tmp_path: Path) -> None:
    without = written(tmp_path, "./x-1.0.whl")
    (tmp_path / "x-1.0.whl").touch()
    assert written(tmp_path, "./x-1.0.whl") != without


def test_build_output_of_pip_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    first = written(tmp_path, "./package\n-e package")
    (tmp_path / "package" / "x.egg-info").mkdir()
    (tmp_path / "package" / "x.py").touch()
    assert written(tmp_path, "./package\n-e package") == first


def test_words_like_missing_files_do_not_matter(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    lines = "x", "# ./x", f"x @ https://example.com/{'x' * 300}.whl", "x --hash=sha256:0"
    for line in lines:
        first = written(tmp_path, line)
        os.utime(tmp_path / "x", ns=(0, 1))
        assert written(tmp_path, line) == first


def test_missing_file_is_left_to_pip(tmp_path: Path) -> None:
    assert written(tmp_path, "-r nowhere.txt") == "-r nowhere.txt"


def test_a_link_to_no_package_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "x-1.0.whl").symlink_to(tmp_path / "nowhere")
    assert "--find-links=wheels/" in written(tmp_path, "--find-links=wheels/")
