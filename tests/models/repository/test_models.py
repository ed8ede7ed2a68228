"""Which models a repository has, and where it is."""

from __future__ import annotations

import re
from os import fsdecode
from pathlib import Path
from typing import NoReturn

import pytest

from models.repository.files import CONFIG, poll_failure, read_model, write_files
from penstock.core.errors import AlreadyExistsError, InternalError, InvalidRequestError
from penstock.models.repository.repository import ModelRepository


@pytest.mark.contract("R-01")
def test_folders_are_models(tmp_path: Path) -> None:
    write_files(tmp_path, "b/", "a/1/", "readme.txt", ".hidden/")
    assert ModelRepository([tmp_path]).names() == ["a", "b"]


def test_byte_code_of_python_is_no_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_files(tmp_path, "__pycache__/helper.pyc", "a/config.pbtxt", "a/__pycache__/", text=CONFIG)
    repository = ModelRepository([tmp_path])
    assert repository.names() == ["a"]
    assert list(repository.states()) == ["a"]
    assert repository.read("a").versions == {}
    assert not caplog.messages
    assert "not found" in poll_failure(caplog, repository, "__pycache__")


def test_folder_with_a_name_that_is_not_utf8_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Names travel in UTF-8: no client could ask for it, and none could be told of it."""
    write_files(tmp_path, "a/1/", fsdecode(b"\xff/1/"))
    repository = ModelRepository([tmp_path])
    assert repository.names() == repository.names() == ["a"]
    ignored = tmp_path / fsdecode(b"\xff")
    assert caplog.messages == [f"ignore model directory '{ignored}': its name is not UTF-8"]


@pytest.mark.contract("R-08")
def test_models_of_all_repositories_are_named_once(tmp_path: Path) -> None:
    write_files(tmp_path, "one/a/", "one/b/", "two/b/", "two/c/")
    assert ModelRepository([tmp_path / "one", tmp_path / "two"]).names() == ["a", "b", "c"]


def test_models_in_two_repositories_are_reported(tmp_path: Path) -> None:
    write_files(tmp_path, "one/m/", "one/n/", "two/m/")
    repository = ModelRepository([tmp_path / "one", tmp_path / "two"])
    assert repository.names_and_duplicates()[1] == {"m"}


def test_model_that_comes_later_is_seen(tmp_path: Path) -> None:
    repository = ModelRepository([tmp_path])
    write_files(tmp_path, "m/")
    assert repository.names() == ["m"]


@pytest.mark.contract("R-28")
def test_model_is_what_its_folder_holds(tmp_path: Path) -> None:
    write_files(tmp_path, "m/config.pbtxt", text=CONFIG)
    write_files(tmp_path, "m/1/", "m/10/", "m/2/")
    files = read_model(tmp_path)
    assert (files.name, files.path, files.has_config) == ("m", tmp_path / "m", True)
    assert (files.config.name, files.config.backend) == ("m", "identity")
    versions = {number: tmp_path / "m" / str(number) for number in (1, 2, 10)}
    assert list(files.versions.items()) == list(versions.items())


@pytest.mark.contract("R-02", "R-19")
def test_model_without_a_config_is_known_by_its_file(tmp_path: Path) -> None:
    write_files(tmp_path, "m/1/model.onnx")
    files = read_model(tmp_path)
    assert not files.has_config
    assert files.config.backend == "onnxruntime"


def test_model_without_versions_can_be_read(tmp_path: Path) -> None:
    write_files(tmp_path, "m/config.pbtxt", text=CONFIG)
    assert read_model(tmp_path).versions == {}


@pytest.mark.contract("M-15")
def test_unknown_model_is_not_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logged = poll_failure(caplog, ModelRepository([tmp_path]))
    assert logged == "failed to poll model 'm': model not found in any model repository."


@pytest.mark.contract("R-08")
def test_model_in_two_repositories_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path, "one/m/1/", "two/m/1/")
    logged = poll_failure(caplog, ModelRepository([tmp_path / "one", tmp_path / "two"]))
    assert logged == "failed to poll model 'm': not unique across all model repositories"


@pytest.mark.contract("R-11", "C-02")
def test_name_must_be_that_of_the_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_files(tmp_path, "m/config.pbtxt", text=f'{CONFIG} name: "other"')
    assert poll_failure(caplog, ModelRepository([tmp_path])) == (
        "Poll failed for model directory 'm': unexpected directory name 'm' for model 'other', "
        "directory name must equal model name"
    )


@pytest.mark.contract("R-12", "SEC-07")
@pytest.mark.parametrize("name", ["..", ".", "a/b", "../a", "/a", "a\\b", "a\0b"])
def test_name_that_leaves_the_repository_is_refused(tmp_path: Path, name: str) -> None:
    text = f"invalid model name '{name}', model name must not contain path traversal characters"
    with pytest.raises(InvalidRequestError, match=f"^{re.escape(text)}$"):
        read_model(tmp_path, name)


@pytest.mark.parametrize("name", ["a" * 256, "a\nb", "\x1b[2J"])
def test_name_that_no_folder_has_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequestError, match=r"^invalid model name '.*': [^\n\x1b]*$"):
        read_model(tmp_path, name)


@pytest.mark.contract("R-12")
def test_empty_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"^Model name cannot be empty"):
        read_model(tmp_path, "")


@pytest.mark.parametrize("url", ["s3://bucket/models", "gs://bucket", "as://account/container"])
def test_an_address_needs_what_opens_it(url: str) -> None:
    with pytest.raises(InternalError, match=f"^model repository '{url}' lies elsewhere"):
        ModelRepository([url])


def test_place_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match=f"^failed to stat file {tmp_path}/nope$"):
        ModelRepository([tmp_path / "nope"])


def test_repository_that_cannot_be_read_leaves_the_others(tmp_path: Path) -> None:
    write_files(tmp_path, "one/a/1/", "one/a/config.pbtxt", text=CONFIG)
    late = tmp_path / "two"
    repository = ModelRepository([tmp_path / "one", late], keeps_going=True)
    assert {path: str(why) for path, why in repository.missing.items()} == {
        str(late): f"failed to stat file {late}"
    }
    assert repository.names() == ["a"]
    assert repository.read("a").path == tmp_path / "one" / "a"
    text = f"failed to load 'b', failed to poll from model repository: failed to stat file {late}"
    with pytest.raises(InternalError, match=f"^{re.escape(text)}$"):
        repository.read("b")


@pytest.mark.parametrize("door", ["poll", "load"])
def test_repository_that_could_not_be_read_is_tried_again(
    tmp_path: Path, door: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path, "one/a/")
    late = tmp_path / "two"
    repository = ModelRepository([tmp_path / "one", late], keeps_going=True, retry_seconds=0)
    write_files(late, "b/1/", "b/config.pbtxt", text=CONFIG)
    assert repository.names() == ["a"]  # an index does not wait for what is not there
    with caplog.at_level("INFO"):
        assert repository.states().keys() == {"a", "b"} if door == "poll" else repository.read("b")
    assert repository.names() == ["a", "b"]
    assert not repository.missing
    assert caplog.messages == [f"model repository '{late}' can be read now"]


def test_repository_is_not_asked_again_at_once(tmp_path: Path) -> None:
    """Where a store does not answer, each try takes seconds."""
    write_files(tmp_path, "one/a/")
    late = tmp_path / "two"
    repository = ModelRepository([tmp_path / "one", late], keeps_going=True, retry_seconds=3600)
    write_files(late, "b/")
    assert repository.states().keys() == {"a"}


def test_repository_that_fails_otherwise_than_before_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reasons = ["no such bucket", "no such bucket", "wrong keys", "wrong keys"]

    def refuse(address: str) -> NoReturn:
        raise OSError(f"'{address}': {reasons.pop(0)}")

    places = (str(tmp_path), "s3://bucket")
    repository = ModelRepository(places, "", refuse, keeps_going=True, retry_seconds=0)
    for _ in range(3):
        assert not repository.states()
    assert not reasons
    assert caplog.messages == ["failed to read model repository 's3://bucket': wrong keys"]


def test_repository_that_could_not_be_read_is_registered_all_the_same(tmp_path: Path) -> None:
    write_files(tmp_path, "one/a/")
    late = tmp_path / "two"
    repository = ModelRepository([tmp_path / "one", late], keeps_going=True, retry_seconds=0)
    with pytest.raises(AlreadyExistsError):
        repository.add(str(late))
    repository.remove(str(late))
    assert not repository.missing
    write_files(late, "b/")
    assert repository.states().keys() == {"a"}


def test_no_repository_is_left_where_none_can_be_read(tmp_path: Path) -> None:
    places = [tmp_path / "one", tmp_path / "two"]
    with pytest.raises(InternalError, match=f"^failed to stat file {tmp_path}/one$"):
        ModelRepository(places, keeps_going=True)
    write_files(tmp_path, "one/a/")
    with pytest.raises(InternalError, match=f"^failed to stat file {tmp_path}/two$"):
        ModelRepository(places)
