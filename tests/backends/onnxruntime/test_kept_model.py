"""Optimised models that are kept: one file for each model and for what it is made from."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from penstock_backends.onnxruntime.kept_model import KeptModel, key_of


def keep(kept: KeptModel, content: bytes) -> Path:
    with kept.made() as path:
        path.write_bytes(content)
    found = kept.find()
    assert found is not None
    return found


def test_models_of_one_folder_are_apart(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    one, other, newer = (
        KeptModel(folder, *names) for names in (("a", "k"), ("b", "k"), ("a", "l"))
    )
    assert one.find() is None
    assert keep(one, b"123") == folder / "a-k-3.onnx"
    assert keep(other, b"1234") == folder / "b-k-4.onnx"
    assert keep(newer, b"12345") == folder / "a-l-5.onnx"
    one.discard()
    assert sorted(path.name for path in folder.iterdir()) == ["a-l-5.onnx", "b-k-4.onnx"]


def test_what_is_made_anew_takes_the_place_of_the_old(tmp_path: Path) -> None:
    kept = KeptModel(tmp_path, "a", "k")
    keep(kept, b"123")
    assert keep(kept, b"12").read_bytes() == b"12"
    assert [path.name for path in tmp_path.iterdir()] == ["a-k-2.onnx"]


def test_a_file_that_was_cut_is_not_found(tmp_path: Path) -> None:
    kept = KeptModel(tmp_path, "a", "k")
    keep(kept, b"123").write_bytes(b"12")
    assert kept.find() is None


def test_what_fails_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    kept = KeptModel(tmp_path, "a", "k")
    old = keep(kept, b"123")
    with suppress(ValueError), kept.made() as path:
        path.write_bytes(b"1")
        raise ValueError
    assert kept.find() == old
    assert [path.name for path in tmp_path.iterdir()] == ["a-k-3.onnx"]


def test_a_key_is_of_the_content_and_of_how_it_is_used(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"one")
    first = key_of(model, "cpu", 1)
    assert key_of(model, "cpu", 1) == first
    assert key_of(model, "cpu", 2) != first
    model.write_bytes(b"two")
    assert key_of(model, "cpu", 1) != first
    assert len(first) == 40
