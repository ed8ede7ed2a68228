"""The cache of a bucket's objects: what is fetched once, what makes room, and who shares it."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.object_store import ObjectStore
from harness.serving import wait_until
from models.remote.opening import (
    MODEL,
    files_of,
    folder_of,
    opened,
    put,
    remote,
)
from penstock.core.errors import ModelLoadError


def test_what_is_in_the_cache_is_not_fetched_again(store: ObjectStore, tmp_path: Path) -> None:
    put(store, MODEL)
    for _ in range(2):
        with opened(store, tmp_path) as repository:
            before = files_of(repository.take("m"))
    assert set(store.gets.values()) == {1}
    assert set(before) == {"config.pbtxt", "1/model.onnx", "2/data/weights"}


def test_only_what_changed_is_fetched(store: ObjectStore, tmp_path: Path) -> None:
    put(store, MODEL)
    with opened(store, tmp_path) as repository:
        repository.take("m")
        store.put("m/1/model.onnx", "another")
        assert files_of(repository.take("m"))["1/model.onnx"] == b"another"
    assert store.gets == {"m/config.pbtxt": 1, "m/1/model.onnx": 2, "m/2/data/weights": 1}


def test_equal_contents_are_kept_once(store: ObjectStore, tmp_path: Path) -> None:
    put(store, {"m/1/a": "same", "m/1/b": "same"})
    with opened(store, tmp_path) as repository:
        assert files_of(repository.take("m")) == {"1/a": b"same", "1/b": b"same"}
    assert len(list((tmp_path / "objects").iterdir())) == 1


def test_equal_contents_that_are_stored_twice_are_not_fetched_again(
    store: ObjectStore, tmp_path: Path
) -> None:
    """Two loads at once may each store them: the later file is in place, with a later time."""
    put(store, {"a/1/w": "same", "b/1/w": "same"})
    with opened(store, tmp_path) as repository:
        for model in "ab":
            repository.take(model)
    for moment in (1, 2):
        for stored in (tmp_path / "objects").iterdir():
            os.utime(stored, (moment, moment))
        with opened(store, tmp_path) as repository:
            for model in "ab":
                assert files_of(repository.take(model)) == {"1/w": b"same"}
    assert store.gets == {"a/1/w": 1, "b/1/w": 1}


def test_an_object_that_somebody_wrote_into_is_fetched_again(
    store: ObjectStore, tmp_path: Path
) -> None:
    store.put("m/1/a", "right")
    with opened(store, tmp_path) as repository:
        folder = folder_of(repository, "m")
        (folder / "1/a").chmod(0o600)
        (folder / "1/a").write_text("wrong")
        assert files_of(repository.take("m")) == {"1/a": b"right"}


def test_a_model_larger_than_the_cache_is_refused(store: ObjectStore, tmp_path: Path) -> None:
    store.put("m/1/weights", b"x" * 2000)
    with (
        opened(store, tmp_path, limit=1000) as repository,
        pytest.raises(ModelLoadError, match="2,000 bytes are more than the cache"),
    ):
        repository.take("m")
    assert not store.gets


def test_a_full_disk_is_one_line_and_is_left_to_others(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(10 << 20)
    put(store, {"a/1/x": "a"})
    for number in range(3):
        store.put(f"m/{number}/weights", content + bytes([number]))
    write = os.pwrite

    def refuse(file: int, data: memoryview, at: int) -> int:
        if at > 8 << 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data, at)

    with opened(store, tmp_path) as repository:
        monkeypatch.setattr(os, "pwrite", refuse)
        with pytest.raises(OSError, match=f"'{tmp_path}' cannot be written: No space .*-cache-dir"):
            repository.take("m")
        assert not list((tmp_path / "parts").iterdir())
        assert files_of(repository.take("a")) == {"1/x": b"a"}
        monkeypatch.undo()
        assert files_of(repository.take("m"))["2/weights"] == content + bytes([2])


def test_what_is_being_fetched_makes_no_room_for_other_loads(
    store: ObjectStore, tmp_path: Path
) -> None:
    """They are listed again when they are two seconds old: all are under way at once."""
    models = "abcdef"
    for model in models:
        store.put_now(f"{model}/1/w", model.encode() * 600)
        store.put_now(f"{model}/1/v", model.encode() * 300)
    with (
        opened(store, tmp_path, limit=1000) as one,
        opened(store, tmp_path, limit=1000) as other,
        ThreadPoolExecutor(12) as pool,
    ):
        every = [pool.submit(place.take, model) for place in (one, other) for model in models]
        for model, taken in zip(models * 2, every, strict=True):
            expected = {"1/v": model.encode() * 300, "1/w": model.encode() * 600}
            assert files_of(taken.result()) == expected
    assert set(store.gets.values()) == {1}


def test_a_model_that_grew_larger_than_the_cache_is_refused(
    store: ObjectStore, tmp_path: Path
) -> None:
    store.put("m/1/a", "a" * 600)
    with opened(store, tmp_path, limit=1000) as repository:
        repository.take("m")
    store.put("m/1/b", "b" * 600)
    with (
        opened(store, tmp_path, limit=1000) as repository,
        pytest.raises(ModelLoadError, match=r"1,200 bytes are more .*--repository-cache-byte-size"),
    ):
        repository.take("m")
    assert store.gets == {"m/1/a": 1}


def test_what_was_not_used_for_longest_makes_room(store: ObjectStore, tmp_path: Path) -> None:
    for model in "abc":
        store.put(f"{model}/1/w", model.encode() * 400)
    for model in "ab":
        with opened(store, tmp_path, limit=1000) as repository:
            repository.take(model)
    with opened(store, tmp_path, limit=1000) as repository:
        repository.take("a")
    with opened(store, tmp_path, limit=1000) as repository:
        repository.take("c")
        repository.take("a")
        repository.take("b")
    assert store.gets == {"a/1/w": 1, "b/1/w": 2, "c/1/w": 1}


def test_what_is_served_from_is_not_removed(store: ObjectStore, tmp_path: Path) -> None:
    for model in "ab":
        store.put(f"{model}/1/w", model.encode() * 800)
    with opened(store, tmp_path, limit=1000) as repository:
        first = repository.take("a")
        repository.take("b")
        assert files_of(first) == {"1/w": b"a" * 800}


def test_folders_of_a_server_that_died_are_removed(store: ObjectStore, tmp_path: Path) -> None:
    put(store, MODEL)
    (tmp_path / "runs" / "of_the_dead" / "x").mkdir(parents=True)
    with opened(store, tmp_path) as one, opened(store, tmp_path) as other:
        first, second = files_of(one.take("m")), files_of(other.take("m"))
        assert first == second
        assert len([run for run in (tmp_path / "runs").iterdir() if run.is_dir()]) == 2
    assert not list((tmp_path / "runs").iterdir())
    assert not list((tmp_path / "parts").iterdir())


def test_two_that_share_a_cache_fetch_once(store: ObjectStore, tmp_path: Path) -> None:
    store.put("m/1/w", os.urandom(1 << 20))
    store.hold_after = 1000
    store.resume.clear()
    with remote(tmp_path) as one, remote(tmp_path) as other:
        takers = [
            threading.Thread(target=each.open(store.address).take, args=("m",))
            for each in (one, other)
        ]
        for taker in takers:
            taker.start()
        wait_until(lambda: bool(store.gets))
        store.resume.set()
        for taker in takers:
            taker.join()
        counts = {
            (each.traffic.fetched_objects, each.traffic.cached_objects) for each in (one, other)
        }
    assert store.gets == {"m/1/w": 1}
    assert counts == {(1, 0), (0, 1)}


def test_another_server_does_not_remove_what_is_about_to_be_served(
    store: ObjectStore, tmp_path: Path
) -> None:
    for model in "ab":
        store.put(f"{model}/1/w", model.encode() * 800)
    with opened(store, tmp_path, limit=1000) as one, opened(store, tmp_path, limit=1000) as other:
        lists = iter((None, lambda: other.take("b")))
        store.on_list = lambda: next(lists, None)
        assert files_of(one.take("a")) == {"1/w": b"a" * 800}
    assert store.gets == {"a/1/w": 1, "b/1/w": 1}
    assert not list((tmp_path / "runs").iterdir())


def test_a_cache_that_cannot_be_written_is_named(store: ObjectStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        remote(tmp_path / "file") as repositories,
        pytest.raises(ModelLoadError, match=f"'{tmp_path / 'file'}'.*--repository-cache-dir"),
    ):
        repositories.open(store.address)


def test_a_cache_that_is_gone_is_made_anew(store: ObjectStore, tmp_path: Path) -> None:
    store.put("m/1/a", "a")
    with opened(store, tmp_path / "cache") as repository:
        repository.take("m")
        (tmp_path / "cache").rename(tmp_path / "gone")  # at once: files may be being synced
        assert files_of(repository.take("m")) == {"1/a": b"a"}


def test_what_nobody_needs_any_more_is_removed(store: ObjectStore, tmp_path: Path) -> None:
    store.put("m/1/a", "a")
    for folder in ("parts", "objects", "names"):
        (tmp_path / folder).mkdir()
    old = [tmp_path / "parts" / name for name in ("of_old", "of_old.done", "of_old.lock")]
    for path in (*old, tmp_path / "objects" / "nameless"):
        path.write_text("x")
        os.utime(path, (0, 0))
    (tmp_path / "names" / "of_none").write_text("digest 0 1 -")
    os.utime(tmp_path / "names" / "of_none", (0, 0))
    with opened(store, tmp_path, limit=1000) as repository:
        repository.take("m")
    assert not list((tmp_path / "parts").iterdir())
    assert not (tmp_path / "names" / "of_none").exists()
    assert len(list((tmp_path / "objects").iterdir())) == 1
