"""Models on disk, and which of their versions are served."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.core.config import (
    AllVersions,
    LatestVersions,
    ModelConfig,
    SpecificVersions,
    VersionPolicy,
)
from penstock.core.errors import (
    InternalError,
    InvalidRequestError,
    ModelLoadError,
    UnsupportedError,
)
from penstock.models.override import ModelOverride
from penstock.models.repository import (
    ModelFiles,
    ModelRepository,
    select_versions,
    versions_to_load,
)
from recorded import log, needs_answers, write_models

CONFIG = 'backend: "identity" max_batch_size: 4'


def _write(root: Path, *paths: str, text: str = "") -> None:
    """Files with `text`, and folders where a path ends in a slash."""
    for path in paths:
        target = root / path
        (target if path.endswith("/") else target.parent).mkdir(parents=True, exist_ok=True)
        if not path.endswith("/"):
            target.write_text(text)


def _read(root: Path, name: str = "m", config_name: str = "") -> ModelFiles:
    return ModelRepository([root], config_name).read(name)


def _poll_failure(
    caplog: pytest.LogCaptureFixture, repository: ModelRepository, name: str = "m"
) -> str:
    """What is logged while the client learns only that the model could not be polled."""
    text = f"failed to load '{name}', failed to poll from model repository"
    with pytest.raises(InternalError, match=f"^{re.escape(text)}$"):
        repository.read(name)
    return caplog.messages[-1]


# -- models --------------------------------------------------------------------------------------


@pytest.mark.contract("R-01")
def test_folders_are_models(tmp_path: Path) -> None:
    _write(tmp_path, "b/", "a/1/", "readme.txt", ".hidden/")
    assert ModelRepository([tmp_path]).names() == ["a", "b"]


@pytest.mark.contract("R-08")
def test_models_of_all_repositories_are_named_once(tmp_path: Path) -> None:
    _write(tmp_path, "one/a/", "one/b/", "two/b/", "two/c/")
    assert ModelRepository([tmp_path / "one", tmp_path / "two"]).names() == ["a", "b", "c"]


def test_model_that_comes_later_is_seen(tmp_path: Path) -> None:
    repository = ModelRepository([tmp_path])
    _write(tmp_path, "m/")
    assert repository.names() == ["m"]


@pytest.mark.contract("R-28")
def test_model_is_what_its_folder_holds(tmp_path: Path) -> None:
    _write(tmp_path, "m/config.pbtxt", text=CONFIG)
    _write(tmp_path, "m/1/", "m/10/", "m/2/")
    files = _read(tmp_path)
    assert (files.name, files.path, files.has_config) == ("m", tmp_path / "m", True)
    assert (files.config.name, files.config.backend) == ("m", "identity")
    versions = {number: tmp_path / "m" / str(number) for number in (1, 2, 10)}
    assert list(files.versions.items()) == list(versions.items())


@pytest.mark.contract("R-02", "R-19")
def test_model_without_a_config_is_known_by_its_file(tmp_path: Path) -> None:
    _write(tmp_path, "m/1/model.onnx")
    files = _read(tmp_path)
    assert not files.has_config
    assert files.config.backend == "onnxruntime"


def test_model_without_versions_can_be_read(tmp_path: Path) -> None:
    _write(tmp_path, "m/config.pbtxt", text=CONFIG)
    assert _read(tmp_path).versions == {}


@pytest.mark.contract("M-15")
def test_unknown_model_is_not_found(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    logged = _poll_failure(caplog, ModelRepository([tmp_path]))
    assert logged == "failed to poll model 'm': model not found in any model repository."


@pytest.mark.contract("R-08")
def test_model_in_two_repositories_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _write(tmp_path, "one/m/1/", "two/m/1/")
    logged = _poll_failure(caplog, ModelRepository([tmp_path / "one", tmp_path / "two"]))
    assert logged == "failed to poll model 'm': not unique across all model repositories"


@pytest.mark.contract("R-11", "C-02")
def test_name_must_be_that_of_the_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _write(tmp_path, "m/config.pbtxt", text=f'{CONFIG} name: "other"')
    assert _poll_failure(caplog, ModelRepository([tmp_path])) == (
        "Poll failed for model directory 'm': unexpected directory name 'm' for model 'other', "
        "directory name must equal model name"
    )


def test_broken_config_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _write(tmp_path, "m/config.pbtxt", text="max_batch: 4")
    path = tmp_path / "m/config.pbtxt"
    logged = _poll_failure(caplog, ModelRepository([tmp_path]))
    start = f"Poll failed for model directory 'm': failed to read text proto from {path}:1:1: "
    assert logged.startswith(start)


@pytest.mark.parametrize("path", ["config.pbtxt", "configs/mine.pbtxt"])
def test_config_that_is_a_folder_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    _write(tmp_path, f"m/{path}/")
    logged = _poll_failure(caplog, ModelRepository([tmp_path], "mine"))
    assert logged == (
        "Poll failed for model directory 'm': failed to read text proto from"
        f" {tmp_path / 'm' / path}: it is not a file"
    )


@pytest.mark.contract("R-12", "SEC-07")
@pytest.mark.parametrize("name", ["..", ".", "a/b", "../a", "/a", "a\\b", "a\0b"])
def test_name_that_leaves_the_repository_is_refused(tmp_path: Path, name: str) -> None:
    text = f"invalid model name '{name}', model name must not contain path traversal characters"
    with pytest.raises(InvalidRequestError, match=f"^{re.escape(text)}$"):
        _read(tmp_path, name)


@pytest.mark.contract("R-12")
def test_empty_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"^Model name cannot be empty"):
        _read(tmp_path, "")


# -- configurations ------------------------------------------------------------------------------


@pytest.mark.contract("R-10")
def test_config_can_be_chosen_by_name(tmp_path: Path) -> None:
    _write(tmp_path, "m/config.pbtxt", text='backend: "a"')
    _write(tmp_path, "m/configs/h100.pbtxt", text='backend: "b"')
    assert _read(tmp_path, config_name="h100").config.backend == "b"
    assert _read(tmp_path, config_name="other").config.backend == "a"
    assert _read(tmp_path).config.backend == "a"


@pytest.mark.contract("R-03")
def test_config_in_a_version_folder_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _write(tmp_path, "m/1/config.pbtxt", "m/1/model.onnx", text="not even read")
    assert not _read(tmp_path).has_config
    assert "a model's configuration belongs in" in caplog.messages[-1]
    assert str(tmp_path / "m/1/config.pbtxt") in caplog.messages[-1]


def test_override_stands_in_for_the_file(tmp_path: Path) -> None:
    _write(tmp_path, "m/config.pbtxt", text=CONFIG)
    files = ModelRepository([tmp_path]).read("m", ModelOverride('{"backend": "repeat"}'))
    assert (files.config.backend, files.config.max_batch_size) == ("repeat", 0)
    assert files.has_config


def test_override_that_is_wrong_is_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _write(tmp_path, "m/")
    with pytest.raises(InternalError, match=r"^failed to load 'm', failed to poll"):
        ModelRepository([tmp_path]).read("m", ModelOverride('{"foo": 1}'))
    assert caplog.messages[-1] == (
        "Poll failed for model directory 'm': "
        "Invalid config override: unknown field 'foo' in model configuration"
    )


@pytest.mark.contract("X-18")
def test_files_stand_in_for_all_that_the_repository_has(tmp_path: Path) -> None:
    _write(tmp_path, "m/1/model", "m/5/model", "m/config.pbtxt", text=CONFIG)
    override = ModelOverride('{"backend": "repeat"}', {"file:2/model": b"x"})
    files = ModelRepository([tmp_path]).read("m", override)
    assert files.folder is not None
    try:
        assert files.versions == {2: files.path / "2"}
        assert files.path == files.folder.path
        assert (files.config.backend, files.config.max_batch_size) == ("repeat", 0)
    finally:
        files.folder.remove()


@pytest.mark.contract("X-18")
@pytest.mark.parametrize(
    ("override", "problem"),
    [
        (
            ModelOverride(None, {"file:1/m": b""}),
            "Load parameter 'config' must be specified for model file override",
        ),
        (ModelOverride("{", {"file:1/m": b""}), "Invalid config override: "),
        (ModelOverride("{}", {"file:../m": b""}), "Invalid file parameter 'file:../m'"),
        (ModelOverride('{"backend":"b"}'), "model not found in any model repository."),
    ],
)
def test_overrides_that_cannot_be_are_told_in_the_log_and_leave_nothing(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    override: ModelOverride,
    problem: str,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(InternalError, match=r"^failed to load 'made', failed to poll"):
        ModelRepository([tmp_path]).read("made", override)
    assert problem in caplog.messages[-1]
    assert list(tmp_path.iterdir()) == []


def test_models_of_two_repositories_are_told(tmp_path: Path) -> None:
    _write(tmp_path, "one/m/", "one/n/", "two/m/")
    assert ModelRepository([tmp_path / "one", tmp_path / "two"]).duplicates() == {"m"}


# -- versions ------------------------------------------------------------------------------------


@pytest.mark.contract("R-04")
@pytest.mark.parametrize(
    ("folder", "warning"),
    [
        ("01", "ignore version directory '01' which contains leading zeros in its directory name"),
        ("abc", "ignore version directory 'abc' which fails to convert to integral number"),
        ("-1", "ignore version directory '-1' which fails to convert to integral number"),
        ("²", "ignore version directory '²' which fails to convert to integral number"),
        (
            str(1 << 63),
            f"ignore version directory '{1 << 63}' which fails to convert to integral number",
        ),
    ],
)
def test_folder_that_is_no_version_is_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, folder: str, warning: str
) -> None:
    _write(tmp_path, "m/config.pbtxt", text=CONFIG)
    _write(tmp_path, "m/0/", f"m/{folder}/", "m/labels.txt")
    assert list(_read(tmp_path).versions) == [0]
    assert caplog.messages == [warning]


def test_folders_with_other_uses_are_ignored_silently(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _write(tmp_path, "m/config.pbtxt", text=CONFIG)
    _write(tmp_path, "m/warmup/", "m/initial_state/", "m/configs/", "m/.git/")
    assert _read(tmp_path).versions == {}
    assert caplog.messages == []


LATEST, ALL = VersionPolicy(latest=LatestVersions(2)), VersionPolicy(all=AllVersions())


@pytest.mark.contract("R-05", "C-06")
@pytest.mark.parametrize(
    ("policy", "selected"),
    [
        (None, [7]),
        (VersionPolicy(), [7]),
        (VersionPolicy(latest=LatestVersions(1)), [7]),
        (VersionPolicy(latest=LatestVersions()), []),
        (LATEST, [3, 7]),
        (VersionPolicy(latest=LatestVersions(9)), [1, 3, 7]),
        (ALL, [1, 3, 7]),
        (VersionPolicy(specific=SpecificVersions((7, 1, 5, 7))), [1, 7]),
        (VersionPolicy(specific=SpecificVersions((5,))), []),
    ],
)
def test_policy_selects_versions(policy: VersionPolicy | None, selected: list[int]) -> None:
    assert select_versions(policy, [3, 7, 1]) == selected


@pytest.mark.parametrize("policy", [None, LATEST, ALL])
def test_nothing_is_selected_from_nothing(policy: VersionPolicy | None) -> None:
    assert select_versions(policy, []) == []


def _files(*versions: int) -> ModelFiles:
    folders = {number: Path(str(number)) for number in versions}
    return ModelFiles("m", Path("m"), ModelConfig("m"), has_config=True, versions=folders)


def test_versions_to_load_are_folders() -> None:
    assert versions_to_load(_files(1, 2, 3), LATEST) == {2: Path("2"), 3: Path("3")}


@pytest.mark.contract("C-06")
def test_version_that_is_not_there_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    policy = VersionPolicy(specific=SpecificVersions((1, 7)))
    assert list(versions_to_load(_files(1, 2), policy)) == [1]
    assert caplog.messages == [
        "version 7 is specified for model 'm', but the version directory is not present"
    ]


@pytest.mark.contract("M-14")
def test_model_without_a_version_to_load_is_refused() -> None:
    text = "at least one version must be available under the version policy of model 'm'"
    with pytest.raises(ModelLoadError, match=f"^{text}$"):
        versions_to_load(_files(), None)


# -- places --------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["s3://bucket/models", "gs://bucket", "as://account/container"])
def test_cloud_storage_is_refused_by_name(url: str) -> None:
    text = f"model repository '{url}': {url[:2]}:// is not supported by this version of Penstock"
    with pytest.raises(UnsupportedError, match=f"^{re.escape(text)}$"):
        ModelRepository([url])


def test_place_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InternalError, match=f"^failed to stat file {tmp_path}/nope$"):
        ModelRepository([tmp_path / "nope"])


# -- as recorded ---------------------------------------------------------------------------------

_POLL_FAILURE = re.compile(r"\"(Poll failed for model directory '(\w+)': .*)\"$", re.MULTILINE)


def _recorded() -> dict[str, str]:
    """What was logged about models that could not be polled; files are told with their place."""
    found = _POLL_FAILURE.findall(log("load_errors_server.log"))
    return {name: re.sub("(failed to read text proto from).*", r"\1", text) for text, name in found}


@needs_answers
@pytest.mark.parametrize(("name", "text"), _recorded().items())
def test_log_is_the_recorded_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, text: str
) -> None:
    repository = ModelRepository([write_models("bad", tmp_path)])
    logged = _poll_failure(caplog, repository, name)
    assert re.sub("(failed to read text proto from).*", r"\1", logged) == text
