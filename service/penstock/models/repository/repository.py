"""`ModelRepository`: reads the models of repository folders: configuration and versions."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from penstock.core.config import ModelConfig, VersionPolicy
from penstock.core.errors import (
    AlreadyExistsError,
    ConfigError,
    InternalError,
    InvalidRequestError,
    ModelLoadError,
    UnsupportedError,
)
from penstock.models.config.defaults import with_backend, with_defaults
from penstock.models.config.pbtxt import parse_override, read_pbtxt
from penstock.models.config.validation import validate_polled
from penstock.models.config.validation.foreign_code import refuse_foreign_code
from penstock.models.repository.override import ModelOverride, ScratchFolder

logger = logging.getLogger(__name__)

CONFIG_FILE = "config.pbtxt"

_NO_VERSIONS = frozenset({"configs", "initial_state", "warmup"})
"""Folders of a model that are not versions."""

_BYTE_CODE = "__pycache__"

_CLOUD = re.compile(r"(s3|gs|as):/")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of one model: its folder, configuration and version folders.

    `config` is that of the file, if any, with backend and defaults filled in; the backend completes
    it. `folder` has files of a load request, in place of the repository's.
    """

    name: str
    path: Path
    config: ModelConfig
    has_config: bool
    versions: Mapping[int, Path]
    folder: ScratchFolder | None = None


class ModelRepository:
    """Repository folders, whose subfolders are models; every call reads the disk.

    `config_name` chooses `configs/<config_name>.pbtxt` over `config.pbtxt` where a model has it.
    In folders that are added later, models may have other names than their folders.
    """

    def __init__(self, paths: Sequence[Path | str], config_name: str = "") -> None:
        self.paths = tuple(_local(path) for path in paths)
        self._config_name = config_name
        self._renamed: dict[Path, dict[str, str]] = {}
        self._ignored: set[Path] = set()

    def _named_folders(self) -> list[tuple[str, Path]]:
        """The name and the folder of every model of every repository."""
        return [
            (self._renamed.get(path, {}).get(folder.name, folder.name), folder)
            for path in self.paths
            for folder in _folders(path)
            if self._has_text_name(folder)
        ]

    def _has_text_name(self, folder: Path) -> bool:
        """Whether a model may have the folder's name; a folder with another is logged once."""
        if _is_utf8(folder.name):
            return True
        if folder not in self._ignored:
            self._ignored.add(folder)
            logger.warning("ignore model directory '%s': its name is not UTF-8", folder)
        return False

    def add(self, path: str, names: Mapping[str, str] | None = None) -> None:
        """Read models of another folder too; raises if it is none, or one of them already.

        `names` are those of models by their folders, where these differ.
        """
        added = _local(path)
        if added in self.paths:
            raise AlreadyExistsError(f"model repository '{path}' has already been registered")
        taken = {name for renamed in self._renamed.values() for name in renamed.values()}
        if both := taken.intersection((names or {}).values()):
            raise AlreadyExistsError(
                f"failed to register '{path}', there is a conflicting mapping for '{min(both)}'"
            )
        self._renamed[added] = dict(names or {})
        self.paths = (*self.paths, added)

    def remove(self, path: str) -> None:
        """Read the models of a folder no more."""
        removed = Path(path)
        if removed not in self.paths:
            raise InvalidRequestError(f"failed to unregister '{path}', repository not found")
        self._renamed.pop(removed, None)
        self.paths = tuple(each for each in self.paths if each != removed)

    def names(self) -> list[str]:
        """Every model of every repository, in alphabetical order."""
        return sorted({name for name, _ in self._named_folders()})

    def models(self) -> list[Path]:
        """The folders of all models, without those in more than one repository."""
        twice = self.duplicates()
        return [folder for name, folder in self._named_folders() if name not in twice]

    def duplicates(self) -> set[str]:
        """Models in more than one repository, which cannot be loaded."""
        found = Counter(name for name, _ in self._named_folders())
        return {name for name, count in found.items() if count > 1}

    def read(
        self, name: str, override: ModelOverride | None = None, scratch: Path | None = None
    ) -> ModelFiles:
        """Read one model's files; what is wrong with them is logged, and said in the error.

        The files of an `override` replace all of the model's, its configuration the model's file.
        They are written below `scratch`.
        """
        check_name(name)
        with _polling(name):
            if override is not None and override.files:
                return _read_files(name, override, scratch)
            path = self._find(name)
            if override is None or override.config is None:
                config = self._read_config(path)
            else:
                config = parse_override(override.config)
                if not override.trusted:
                    refuse_foreign_code(config, partial(self._read_config, path))
            if config is not None and name != path.name:  # registered under another name
                config = replace(config, name=name)
            with naming_misplaced_config(path, config is not None):
                polled = _polled(config or ModelConfig(), name, path)
            return ModelFiles(name, path, polled, config is not None, _versions(path))

    def _find(self, name: str) -> Path:
        found = [folder for folder in self._folders_of(name) if _is_folder(folder)]
        if len(found) != 1:
            problem = (
                "not unique across all model repositories"
                if found
                else "model not found in any model repository."
            )
            logger.error("failed to poll model '%s': %s", name, problem)
            raise _poll_failure(name)
        return found[0]

    def _folders_of(self, name: str) -> Iterator[Path]:
        """Where a model would lie in each repository."""
        for path in self.paths:
            renamed = self._renamed.get(path, {})
            given = next((folder for folder, other in renamed.items() if other == name), None)
            if given is not None or name not in renamed:
                yield path / (given or name)

    def _read_config(self, path: Path) -> ModelConfig | None:
        """The configuration in the model's file; `None` if the file does not exist."""
        custom = path / "configs" / f"{self._config_name}.pbtxt"
        for candidate in (custom, path / CONFIG_FILE):
            if candidate.exists():
                return read_pbtxt(candidate)
        return None


def _read_files(name: str, override: ModelOverride, scratch: Path | None) -> ModelFiles:
    """Read a model whose files came with the load request."""
    if override.config is None:
        raise ModelLoadError("Load parameter 'config' must be specified for model file override")
    folder = ScratchFolder(scratch)
    try:
        override.write(folder.path)
        config = _polled(parse_override(override.config), name, folder.path)
        return ModelFiles(name, folder.path, config, True, _versions(folder.path), folder)
    except BaseException:
        folder.remove()
        raise


def _polled(config: ModelConfig, name: str, path: Path) -> ModelConfig:
    """The configuration with backend and defaults filled in, validated as far as possible."""
    if config.name not in ("", name):
        raise ConfigError(
            f"unexpected directory name '{name}' for model '{config.name}', "
            "directory name must equal model name"
        )
    config = with_defaults(with_backend(config, name, _file_names(path)))
    validate_polled(config)
    return config


@contextmanager
def naming_misplaced_config(path: Path, has_config: bool) -> Iterator[None]:
    """Name a file that lies in a version's folder in the errors of a model that lacks one."""
    try:
        yield
    except ModelLoadError as error:
        lost = None if has_config else next(path.glob(f"[0-9]*/{CONFIG_FILE}"), None)
        if lost is None:
            raise
        kind = ConfigError if isinstance(error, ConfigError) else ModelLoadError
        raise kind(f"{error}; '{lost}' is not read: it belongs in '{path}'") from error


@contextmanager
def _polling(name: str) -> Iterator[None]:
    """Log a failure and raise it for the client, in Triton's words and with the reason."""
    try:
        yield
    except (ModelLoadError, OSError) as error:
        logger.error("Poll failed for model directory '%s': %s", name, error)
        raise _poll_failure(name, f": {error}") from error


def _poll_failure(name: str, reason: str = "") -> InternalError:
    return InternalError(f"failed to load '{name}', failed to poll from model repository{reason}")


def check_name(name: str) -> None:
    """Refuse names that are not a folder directly inside a repository."""
    if not name:
        raise InvalidRequestError(
            "Model name cannot be empty. Please enter a valid name to deploy."
        )
    if name in (".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise InvalidRequestError(
            f"invalid model name '{name}', model name must not contain path traversal characters"
        )


def select_versions(policy: VersionPolicy | None, available: Iterable[int]) -> list[int]:
    """The versions that a policy selects, ascending; without a policy, the latest."""
    versions = sorted(available)
    if policy is not None and policy.all is not None:
        return versions
    if policy is not None and policy.specific is not None:
        wanted = set(policy.specific.versions)
        return [version for version in versions if version in wanted]
    latest = policy.latest if policy is not None else None
    count = latest.num_versions if latest is not None else 1
    return versions[-count:] if count else []


def versions_to_load(files: ModelFiles, policy: VersionPolicy | None) -> dict[int, Path]:
    """The folders of the versions that a policy selects; raises if there are none."""
    if policy is not None and policy.specific is not None:
        for version in policy.specific.versions:
            if version not in files.versions:
                logger.error(
                    "version %d is specified for model '%s', "
                    "but the version directory is not present",
                    version,
                    files.name,
                )
    selected = select_versions(policy, files.versions)
    if not selected:
        raise ModelLoadError(
            "at least one version must be available "
            f"under the version policy of model '{files.name}'"
        )
    return {version: files.versions[version] for version in selected}


# -- the disk ----------------------------------------------------------------------------------


def _local(path: Path | str) -> Path:
    if _CLOUD.match(str(path)):
        scheme = str(path).partition(":")[0]
        raise UnsupportedError(
            f"model repository '{path}': {scheme}:// is not supported by this version of Penstock"
        )
    local = Path(path)
    if not local.is_dir():
        raise InternalError(f"failed to stat file {path}")
    return local


def _folders(path: Path) -> list[Path]:
    """Subfolders by name, without hidden ones."""
    return sorted(p for p in path.iterdir() if _is_folder(p) and not p.name.startswith("."))


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_folder(path: Path) -> bool:
    """Whether a path is a folder of files; Python's byte code is none, wherever it comes to lie."""
    return path.is_dir() and path.name != _BYTE_CODE


def _file_names(path: Path) -> frozenset[str]:
    """The file names in a model's first folder, taken as typical of all versions."""
    first = next(iter(_folders(path)), None)
    return frozenset() if first is None else frozenset(p.name for p in first.iterdir())


def _versions(path: Path) -> dict[int, Path]:
    """The version folders of a model, ascending."""
    versions: dict[int, Path] = {}
    for folder in _folders(path):
        if folder.name in _NO_VERSIONS:
            continue
        version = _version_number(folder.name)
        if version is None:
            continue
        versions[version] = folder
        if (folder / CONFIG_FILE).is_file():
            logger.warning(
                "ignore '%s': a model's configuration belongs in '%s'",
                folder / CONFIG_FILE,
                path / CONFIG_FILE,
            )
    return dict(sorted(versions.items()))


def _version_number(name: str) -> int | None:
    """The number in a folder's name; logs a warning if it is not a version number."""
    if len(name) > 1 and name.startswith("0"):
        logger.warning(
            "ignore version directory '%s' which contains leading zeros in its directory name", name
        )
        return None
    if not (name.isascii() and name.isdecimal() and int(name) < 1 << 63):
        logger.warning(
            "ignore version directory '%s' which fails to convert to integral number", name
        )
        return None
    return int(name)
