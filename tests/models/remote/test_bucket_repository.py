"""The models of a bucket, as folders on the disk."""

from __future__ import annotations

import json
import os
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from harness.object_store import LONG_AGO, ObjectStore
from harness.serving import wait_until
from models.remote.opening import (
    KEYS,
    MODEL,
    SCHEMES,
    address_of,
    files_of,
    folder_of,
    opened,
    put,
    remote,
    variables_of,
)
from models.repository.files import CONFIG, write_files
from penstock.core.errors import AlreadyExistsError, InternalError, ModelLoadError
from penstock.models.remote.bucket import BucketError
from penstock.models.remote.credentials import VARIABLE
from penstock.models.remote.remote_repositories import RemoteRepositories
from penstock.models.remote.store_thread import StoreThread
from penstock.models.repository.repository import ModelRepository


def test_a_model_is_laid_out_as_it_lies_in_the_bucket(store: ObjectStore, tmp_path: Path) -> None:
    put(store, {**MODEL, "n/1/x": "", "readme": "at the top"})
    with opened(store, tmp_path) as repository:
        assert repository.folders() == ["m", "n"]
        folder = folder_of(repository, "m")
        assert folder.name == "m"
        expected = {key.removeprefix("m/"): text.encode() for key, text in MODEL.items()}
        assert files_of(repository.take("m")) == expected
        assert repository.take("missing") is None


def test_a_model_without_a_version_has_an_empty_one(store: ObjectStore, tmp_path: Path) -> None:
    """An ensemble needs an empty folder, which no bucket can hold (R-24)."""
    store.put("m/config.pbtxt")
    with opened(store, tmp_path) as repository:
        assert (folder_of(repository, "m") / "1").is_dir()


@pytest.mark.parametrize("marks", [("m/", "m/3/"), ("m/3/",), ("m/3/", "m/3/a")])
def test_marks_of_folders_are_folders(
    store: ObjectStore, tmp_path: Path, marks: tuple[str, ...]
) -> None:
    for key in ("m/config.pbtxt", *marks):
        store.put(key)
    with opened(store, tmp_path) as repository:
        folder = folder_of(repository, "m")
        assert (folder / "3").is_dir()
        assert not (folder / "1").exists()


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("m/../../outside", "key 'm/../../outside' is no path: it has a part '..'"),
        ("m/a//b", "key 'm/a//b' is no path: it has a part ''"),
        ("m/a\0b", r"key 'm/a\x00b' is no path: it has a character"),
        ("m/./a", "a part '.'"),
        (f"m/{'n' * 256}", "more than 255 bytes"),
        ("m/1/back\\slash", "no file's name"),
        ("m/1/a\x1b[2Jb", "a character that no file's name may have"),
        (f"m/{'/'.join(['n' * 200] * 5)}/{'n' * 30}", "more than 1024 bytes"),
        ("m/1", "an object and a folder"),
    ],
)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_key_that_is_no_path_harms_its_model_alone(
    store: ObjectStore, tmp_path: Path, scheme: str, key: str, said: str
) -> None:
    put(store, {"good/1/a": "a", "m/1/x": "x", key: "hostile"})
    with opened(store, tmp_path / "cache", scheme=scheme) as repository:
        with pytest.raises(ModelLoadError) as raised:  # nothing to try again
            repository.take("m")
        assert said in str(raised.value)
        assert str(raised.value).isprintable()
        assert files_of(repository.take("good")) == {"1/a": b"a"}
        assert set(repository.states()) >= {"good"}
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


@pytest.mark.parametrize("key", ["../evil", "/1/x", "./x", "a\0b/1/x", "c\x1b[2J/x"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_key_at_the_top_that_is_no_path_is_named_and_left_out(
    store: ObjectStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, scheme: str, key: str
) -> None:
    put(store, {"good/1/a": "a", "z/1/x": "x", key: "hostile"})
    for number in range(1200):  # of several pages
        store.put(f"good/1/{number}", "")
    with opened(store, tmp_path / "cache", scheme=scheme) as repository:
        for _ in range(2):
            assert repository.folders() == ["good", "z"]
            assert set(repository.states()) == {"good", "z"}
        assert files_of(repository.take("z")) == {"1/x": b"x"}
        assert "good" in repository.folders()
    lines = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(lines) == 1
    assert ascii(key.partition("/")[0] + "/") in lines[0]
    assert lines[0].isprintable()


@pytest.mark.parametrize("prefix", ["repo", "deep/repo"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_key_that_is_no_path_below_a_prefix_is_left_out(
    store: ObjectStore, tmp_path: Path, scheme: str, prefix: str
) -> None:
    put(store, {f"{prefix}/m/1/x": "x", f"{prefix}/../y": "y", f"{prefix}2/../n": "other"})
    with remote(tmp_path, 0, **variables_of(store)) as repositories:
        repository = repositories.open(f"{address_of(store, scheme)}/{prefix}")
        assert repository.folders() == ["m"]
        assert set(repository.states()) == {"m"}
        assert files_of(repository.take("m")) == {"1/x": b"x"}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_store_that_throttles_the_listing_of_keys_that_are_no_paths_is_asked_again(
    store: ObjectStore, tmp_path: Path, scheme: str
) -> None:
    put(store, {"m/1/x": "x", "../y": "y"})

    def refuse() -> None:
        store.refusals = [(503, "SlowDown")] * 2

    with opened(store, tmp_path, scheme=scheme) as repository:
        listings = iter((refuse, None, None))
        store.on_list = lambda: next(listings)
        assert repository.folders() == ["m"]


def test_a_model_is_what_two_listings_say(store: ObjectStore, tmp_path: Path) -> None:
    """Somebody goes on to upload while the first files are fetched."""
    store.put_now("m/1/a", "half" * 1000)
    store.hold_after = 100
    store.resume.clear()
    with opened(store, tmp_path) as repository, ThreadPoolExecutor(1) as threads:
        taking = threads.submit(repository.take, "m")
        wait_until(lambda: bool(store.sent["m/1/a"]))
        store.put_now("m/1/b", "the rest")
        store.resume.set()
        assert set(files_of(taking.result())) == {"1/a", "1/b"}


def test_what_was_changed_in_a_second_may_be_as_young_as_its_end(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stores list times in whole seconds: an object of 1.2 s looks like one of 2.1."""
    store.put("m/1/a", "half", LONG_AGO + 0.9)
    waited: list[float] = []
    monkeypatch.setattr(StoreThread, "wait", lambda _, seconds: waited.append(seconds))
    monkeypatch.setattr(time, "time", lambda: LONG_AGO + 2.1)
    with opened(store, tmp_path) as repository:
        repository.take("m")
    assert waited == [pytest.approx(0.9)]


def test_an_object_that_is_replaced_while_it_is_fetched_is_fetched_whole(
    store: ObjectStore, tmp_path: Path
) -> None:
    store.put("m/1/a", "old" * 1000)
    store.cut_after = [10]
    store.hold_after = 5
    store.resume.clear()
    with opened(store, tmp_path) as repository, ThreadPoolExecutor(1) as threads:
        taking = threads.submit(repository.take, "m")
        wait_until(lambda: bool(store.sent["m/1/a"]))
        store.put("m/1/a", "new" * 1000)
        store.resume.set()
        assert files_of(taking.result()) == {"1/a": b"new" * 1000}


def test_a_change_counts_once_two_polls_have_seen_it(store: ObjectStore, tmp_path: Path) -> None:
    put(store, {"m/1/a": "1", "n/1/a": "1"})
    with opened(store, tmp_path) as repository:
        first = repository.states()
        store.put("m/1/a", "2")
        store.put("new/1/a", "3")
        del store.objects["n/1/a"]
        assert repository.states() == first
        store.put("new/1/b", "4")
        second = repository.states()
        assert set(second) == {"m"}
        assert second["m"] != first["m"]
        assert set(repository.states()) == {"m", "new"}


@pytest.mark.parametrize("status", [(503, "SlowDown"), (500, "InternalError"), (429, "Throttled")])
def test_a_store_that_throttles_is_asked_again(
    store: ObjectStore, tmp_path: Path, status: tuple[int, str]
) -> None:
    put(store, MODEL)
    store.refusals = [status] * 3
    with opened(store, tmp_path) as repository:
        assert len(files_of(repository.take("m"))) == 3


@pytest.mark.slow
def test_a_store_that_throttles_for_longer_is_asked_until_it_answers(
    store: ObjectStore, tmp_path: Path
) -> None:
    put(store, MODEL)
    store.refusals = [(503, "SlowDown")] * 8
    with opened(store, tmp_path) as repository:
        assert repository.folders() == ["m"]


def test_a_broken_answer_goes_on_where_it_broke(store: ObjectStore, tmp_path: Path) -> None:
    content = os.urandom(3 << 20)
    store.put("m/1/weights", content)
    store.cut_after = [1 << 20, 1 << 20]
    with remote(tmp_path) as repositories:
        taken = files_of(repositories.open(store.address).take("m"))
        assert repositories.traffic.retries + store.gets["m/1/weights"] >= 3
    assert taken == {"1/weights": content}
    assert store.sent["m/1/weights"] <= len(content) + (2 << 20)


@pytest.mark.parametrize("name", ["n" * 300, "back\\slash"])
def test_a_model_whose_name_is_no_folder_is_refused(
    name: str, store: ObjectStore, tmp_path: Path
) -> None:
    store.put(f"{name}/1/a", "a")
    with opened(store, tmp_path) as repository, pytest.raises(ModelLoadError, match="is no path"):
        repository.take(name)


@pytest.mark.contract("R-33", "EV-06")
def test_variables_name_the_folder_of_local_copies(store: ObjectStore, tmp_path: Path) -> None:
    store.put("m/1/a", "a")
    mount = tmp_path / "mount"
    environment = {**KEYS, "HOME": str(tmp_path), "TRITON_AWS_MOUNT_DIRECTORY": str(mount)}
    with closing(RemoteRepositories("", 0, environment)) as repositories:
        taken = repositories.open(store.address).take("m")
        assert taken is not None
        assert taken[0].is_relative_to(mount)


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        ((404, "NoSuchBucket"), "is its name right"),
        ((403, "AccessDenied"), "may not list"),
        ((403, "SignatureDoesNotMatch"), "the secret key"),
        ((403, "RequestTimeTooSkewed"), "the clock"),
        ((400, "ExpiredToken"), "has expired"),
        ((403, "AuthorizationFailure"), "the account's key"),
        ((400, "AuthorizationHeaderMalformed"), "AWS_DEFAULT_REGION"),
        ((403, ""), "the store answered 403 Forbidden"),
    ],
)
def test_a_refusal_is_one_line_that_says_what_to_do(
    store: ObjectStore, tmp_path: Path, refusal: tuple[int, str], said: str
) -> None:
    with opened(store, tmp_path) as repository:
        store.refusals = [refusal] * 10
        with pytest.raises(BucketError, match=said) as raised:
            repository.folders()
    assert refusal[1] in str(raised.value)
    assert str(raised.value).isprintable()
    assert "RequestId" not in str(raised.value)


def keys_in(path: Path, key: str) -> None:
    path.write_text(json.dumps({"s3": {"": {"key_id": key, "secret_key": "secret"}}}))


@pytest.mark.contract("R-32")
def test_keys_that_expire_are_read_anew_at_once(store: ObjectStore, tmp_path: Path) -> None:
    put(store, MODEL)
    file = tmp_path / "keys.json"
    environment = {VARIABLE: str(file), "HOME": str(tmp_path)}
    keys_in(file, "first")
    store.key = "first"
    with closing(RemoteRepositories(str(tmp_path / "cache"), 0, environment)) as repositories:
        repository = repositories.open(store.address)
        assert repository.folders() == ["m"]
        store.key = "second"
        with pytest.raises(BucketError, match="InvalidAccessKeyId"):
            repository.folders()
        keys_in(file, "second")
        assert repository.folders() == ["m"]
        keys_in(file, "third")
        store.key = "third"
        assert len(files_of(repository.take("m"))) == 3
        store.key = "fourth"
        file.write_text("{")  # somebody is writing it
        with pytest.raises(BucketError, match=r"keys\.json.* cannot be read"):
            repository.states()
        keys_in(file, "fourth")
        assert set(repository.states()) == {"m"}


def test_a_repository_that_cannot_be_read_counts_as_it_was(
    store: ObjectStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(store, MODEL)
    write_files(tmp_path / "folder", "a/1/x", "a/config.pbtxt", text=CONFIG)
    with remote(tmp_path / "cache") as repositories:
        repository = ModelRepository(
            [tmp_path / "folder", store.address], open_remote=repositories.open
        )
        assert set(repository.states()) == {"a", "m"}
        store.refusals = [(403, "AccessDenied")] * 10
        write_files(tmp_path / "folder", "b/1/x", "b/config.pbtxt", text=CONFIG)
        assert set(repository.states()) == {"a", "b", "m"}
        assert "failed to poll the model repository: 's3://" in caplog.text
        assert repository.read("b").path == tmp_path / "folder" / "b"


def test_a_model_of_a_folder_is_read_while_a_bucket_cannot_be(
    store: ObjectStore, tmp_path: Path
) -> None:
    """Without any poll: a bucket counts as it was listed last, by whatever listed it."""
    put(store, MODEL)
    write_files(tmp_path / "folder", "a/1/x", "a/config.pbtxt", text=CONFIG)
    with remote(tmp_path / "cache") as repositories:
        repository = ModelRepository(
            [tmp_path / "folder", store.address], open_remote=repositories.open
        )
        put(store, {"late/config.pbtxt": CONFIG})
        assert "late" in repository.names()
        store.refusals = [(403, "AccessDenied")] * 100
        assert repository.read("a").path == tmp_path / "folder" / "a"
        write_files(tmp_path / "folder", "late/1/x", "late/config.pbtxt", text=CONFIG)
        with pytest.raises(InternalError, match=r"failed to poll from model repository$"):
            repository.read("late")
        with pytest.raises(InternalError, match="AccessDenied"):
            repository.read("m")


def test_an_address_with_a_slash_at_its_end_is_the_same_repository(
    store: ObjectStore, tmp_path: Path
) -> None:
    put(store, MODEL)
    with remote(tmp_path / "cache") as repositories:
        addresses = [store.address, f"{store.address}/"]
        repository = ModelRepository(addresses, open_remote=repositories.open)
        assert repository.names_and_duplicates()[1] == set()
        with pytest.raises(AlreadyExistsError):
            repository.add(f"{store.address}/")
        repository.remove(f"{store.address}/")
        assert repository.names() == []


def test_a_model_that_the_store_did_not_give_is_tried_again(
    store: ObjectStore, tmp_path: Path
) -> None:
    put(store, {"m/config.pbtxt": CONFIG, "m/1/x": "x"})
    with remote(tmp_path / "cache") as repositories:
        repository = ModelRepository([store.address], open_remote=repositories.open)
        before = repository.states()
        store.refusals = [(403, "AccessDenied")] * 10
        with pytest.raises(InternalError, match="AccessDenied"):
            repository.read("m")
        store.refusals = []
        after = repository.states()
        assert after != before
        assert list(repository.read("m").versions) == [1]
        assert repository.states() == after


def test_a_store_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with remote(tmp_path) as repositories:
        repository = repositories.open("s3://http://127.0.0.1:9/bucket")
        with pytest.raises(BucketError, match="nothing answers there") as raised:
            repository.folders()
    assert "http://127.0.0.1:9" in str(raised.value)


def test_a_long_listing_is_read_to_its_end_and_takes_little_memory(
    store: ObjectStore, tmp_path: Path
) -> None:
    for number in range(2500):
        store.put(f"m/1/{number:05}")
    with opened(store, tmp_path) as repository:
        tracemalloc.start()
        first = repository.states()
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        store.put("m/1/02499", "changed")
        repository.states()
        assert repository.states() != first
    assert kept < 2500 * 100  # bytes


def test_hidden_folders_are_no_models(store: ObjectStore, tmp_path: Path) -> None:
    put(store, {".git/config": "x", "__pycache__/a.pyc": "x", "m/1/a": "a"})
    with opened(store, tmp_path) as repository:
        assert repository.folders() == ["m"]
        assert set(repository.states()) == {"m"}
        assert ".git" not in repository.folders()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/typo", "there is nothing at '{}/typo': is its path right?"),
        ("/m/", "'{}/m/' has a config.pbtxt of its own: is it a model? Its repository is '{}'"),
    ],
)
def test_an_address_of_no_repository_is_told_once(
    store: ObjectStore, tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str, said: str
) -> None:
    put(store, MODEL)
    with remote(tmp_path) as repositories:
        for address in (store.address, f"{store.address}{path}"):
            repository = repositories.open(address)
            for _ in range(2):
                repository.folders()
    assert caplog.messages == [said.replace("{}", store.address)]
