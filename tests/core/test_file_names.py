"""The rule about names of files from outside, by examples and by whatever hypothesis thinks of."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.file_names import clash, folders_above, wrong_name

# Names are made of what makes them wrong.
PARTS = st.one_of(
    st.sampled_from(["", ".", "..", "...", "a", "C:", "a" * 255, "a" * 256, "é" * 128, "\udce9"]),
    st.text(max_size=6),
)
NAMES = st.lists(PARTS, min_size=1, max_size=6).map("/".join)


@pytest.mark.parametrize(
    "name",
    [
        "model.onnx",
        "1/model.onnx",
        "..a/b..",
        "a:b/c",
        "ab:/c",
        "a b",
        "é/日本",
        "a" * 255,
        "\udce9",
    ],
)
def test_a_name_below_a_folder_is_right(name: str) -> None:
    assert wrong_name(name) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "part ''"),
        ("/etc/passwd", "part ''"),
        ("a//b", "part ''"),
        ("a/", "part ''"),
        (".", "part '.'"),
        ("../x", "part '..'"),
        ("a/../../x", "part '..'"),
        ("a/..", "part '..'"),
        ("a\0b", "a character"),
        ("a\nb", "a character"),
        ("a\x1b[2J", "a character"),
        ("a\x7f", "a character"),
        ("..\\x", "a character"),
        ("C:\\x", "a character"),
        ("\ud800", "a character"),
        ("C:/x", "a drive"),
        ("c:", "a drive"),
        ("a/" + "b" * 256, "more than 255 bytes"),
        ("é" * 128, "more than 255 bytes"),
        ("/".join(["a" * 200] * 6), "more than 1024 bytes"),
    ],
)
def test_any_other_is_wrong(name: str, why: str) -> None:
    assert why in wrong_name(name)


@given(NAMES)
def test_what_is_right_lies_below_the_folder_and_can_be_written(name: str) -> None:
    if wrong_name(name):
        return
    with TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        assert os.path.realpath(path) == f"{os.path.realpath(folder)}/{name}"


@given(st.lists(NAMES, max_size=5), st.lists(NAMES, max_size=5))
def test_a_name_that_climbs_is_wrong_whatever_stands_around(
    before: list[str], after: list[str]
) -> None:
    assert wrong_name("/".join([*before, "..", *after]))


def test_the_folders_of_a_name_are_those_above_it() -> None:
    assert [*folders_above("a/b/c")] == ["a", "a/b"]
    assert [*folders_above("/a//b")] == ["", "/a", "/a/"]
    assert [*folders_above("a")] == []


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["a", "b/c", "b/d"], ""),
        (["a", "a/b"], "a/b"),
        (["a/b/c", "a"], "a"),
        (["a/b", "a/b/c/d"], "a/b/c/d"),
        (["a", "ab/c"], ""),
    ],
)
def test_no_file_is_a_folder_of_another(names: list[str], found: str) -> None:
    assert clash(names) == found


@given(st.lists(st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map("/".join), max_size=6))
def test_files_without_a_clash_can_be_written_and_others_cannot(names: list[str]) -> None:
    with TemporaryDirectory() as folder:
        try:
            for name in names:
                path = Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"")
        except OSError:
            assert clash(names)
        else:
            assert not clash(names)
