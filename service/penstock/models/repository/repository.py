"""`ModelRepository`: reads the models of repository folders: configuration and versions."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from penstock.core.config import ModelConfig, SpecificVersions, VersionPolicy
from penstock.core.errors import (
    AlreadyExistsError,
    ConfigError,
    InferenceError,
    InternalError,
    InvalidRequestError,
    ModelLoadError,
    shortened,
)
from penstock.core.file_names import wrong_name
from penstock.core.full_names import ambiguous_name, full_name, split_name
from penstock.models.config.defaults import with_backend, with_defaults
from penstock.models.config.pbtxt import parse_override, read_pbtxt
from penstock.models.config.validation import validate_polled
from penstock.models.config.validation.foreign_code import refuse_foreign_code
from penstock.models.remote.address import scheme_of
from penstock.models.repository.override import ModelOverride, ScratchFolder
from penstock.models.repository.places import (
    LocalFolder,
    Needed,
    Opener,
    RemotePlace,
    subfolders,
)

logger = logging.getLogger(__name__)

CONFIG_FILE = "config.pbtxt"

_Located = tuple[str, Path, ScratchFolder | None]
"""The repository of a model, its folder, and what removes that where it is a temporary one."""

_NO_VERSIONS = frozenset({"configs", "initial_state", "warmup"})
"""Folders of a model that are not versions."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of one model: its folder, configuration and version folders.

    `config` is that of the file, if any, with backend and defaults filled in; the backend completes
    it. `folder` is a temporary one, where the files lie in no folder of a repository. `namespace`
    is that of their repository, with `--model-namespacing`.
    """

    name: str
    path: Path
    config: ModelConfig
    has_config: bool
    versions: Mapping[int, Path]
    folder: ScratchFolder | None = None
    namespace: str = ""

    @property
    def uploaded(self) -> bool:
        """Whether the files came with a load request, and cannot be read again."""
        return self.folder is not None and self.folder.uploaded


class ModelRepository:
    """Repositories, whose folders are models; every call reads the disk, or asks the store.

    `config_name` chooses `configs/<config_name>.pbtxt` over `config.pbtxt` where a model has it.
    `open_remote` opens those that are named by addresses. In repositories that are added later,
    models may have other names than their folders. With `namespacing` models of several
    repositories may have one name: each then has a full name, `core.full_names`, by which steps of
    ensembles in its own repository find it (R-09).

    One that cannot be read raises an `InferenceError`. With `keeps_going` only where none can be
    read: any other is `missing`, and is tried again by a poll, and by the load of a model that no
    other repository has, `retry_seconds` after the last try.
    """

    def __init__(
        self,
        paths: Sequence[Path | str],
        config_name: str = "",
        open_remote: Opener | None = None,
        *,
        keeps_going: bool = False,
        retry_seconds: float = 0.5,
        namespacing: bool = False,
    ) -> None:
        self._open_remote = open_remote
        self._namespacing = namespacing
        self._places: dict[str, LocalFolder | RemotePlace] = {}
        self._listed: dict[str, Collection[str]] = {}
        self.missing: Mapping[str, InferenceError] = {}
        """Repositories that could not be read since the start, with the reasons."""
        self._retry_seconds = retry_seconds
        self._open_all(paths, keeps_going=keeps_going)
        self._retried = time.monotonic()
        self._retrying = threading.Lock()
        self._config_name = config_name
        self._renamed: dict[str, dict[str, str]] = {}
        self._known: dict[str, Mapping[str, Hashable]] = {}
        self._unread = Counter[str]()

    def _open_all(self, paths: Iterable[Path | str], *, keeps_going: bool) -> None:
        missing: dict[str, InferenceError] = {}
        for path in paths:
            try:
                self._places[_named(path)] = self._opened(path)
            except InferenceError as error:
                if not keeps_going:
                    raise
                missing[_named(path)] = error
        if missing and not self._places:
            raise next(iter(missing.values()))
        self.missing = missing

    def _opened(self, path: Path | str) -> LocalFolder | RemotePlace:
        try:
            place = self._place_of(path)
            self._folders(_named(path), place)
        except OSError as error:
            raise InternalError(f"failed to read model repository {error}") from error
        return place

    def _place_of(self, path: Path | str) -> LocalFolder | RemotePlace:
        if not scheme_of(str(path)):
            return LocalFolder(path)
        if self._open_remote is None:
            raise InternalError(f"model repository '{path}' lies elsewhere, which is not set up")
        return self._open_remote(str(path))

    def _retry_missing(self) -> None:
        """Open what could not be read, unless that was tried just now, here or on another thread.

        A store that does not answer takes seconds. What fails otherwise than before is logged.
        """
        with self._retrying:
            if not self.missing or time.monotonic() < self._retried + self._retry_seconds:
                return
            for path, known in self.missing.items():
                left = {other: why for other, why in self.missing.items() if other != path}
                try:
                    self._places = {**self._places, path: self._opened(path)}
                    self.missing = left
                    logger.info("model repository '%s' can be read now", path)
                except InferenceError as error:
                    if error.message != known.message:
                        logger.error("%s", error)
                    self.missing = {**left, path: error}
            self._retried = time.monotonic()

    def _named_folders(self) -> list[tuple[str, str]]:
        """Repository and name of every model."""
        try:
            return [
                (path, self._renamed.get(path, {}).get(folder, folder))
                for path, place in self._places.items()
                for folder in self._folders(path, place)
            ]
        except OSError as error:
            raise InternalError(f"failed to read model repository {error}") from error

    def _folders(self, path: str, place: LocalFolder | RemotePlace) -> Collection[str]:
        found = self._listed[path] = place.folders()
        return found

    def add(self, path: str, names: Mapping[str, str] | None = None) -> None:
        """Read models of another folder too; raises if it is none, or one of them already.

        `names` are those of models by their folders, where these differ.
        """
        key = _named(path)
        if key in self._places or key in self.missing:
            raise AlreadyExistsError(f"model repository '{path}' has already been registered")
        added = self._opened(path)
        taken = {name for renamed in self._renamed.values() for name in renamed.values()}
        if both := taken.intersection((names or {}).values()):
            raise AlreadyExistsError(
                f"failed to register '{path}', there is a conflicting mapping for '{min(both)}'"
            )
        self._renamed[key] = dict(names or {})
        self._places = {**self._places, key: added}

    def remove(self, path: str) -> None:
        """Read the models of a folder no more."""
        key = _named(path)
        if key not in self._places and key not in self.missing:
            raise InvalidRequestError(f"failed to unregister '{path}', repository not found")
        self.missing = {each: why for each, why in self.missing.items() if each != key}
        self._renamed.pop(key, None)
        self._known.pop(key, None)
        self._places = {each: place for each, place in self._places.items() if each != key}

    def names(self) -> list[str]:
        """Every model of every repository, in alphabetical order."""
        return sorted(self.names_and_duplicates()[0])

    def names_and_duplicates(self) -> tuple[set[str], set[str]]:
        """Every model, and those in more than one repository, which cannot be loaded."""
        found = self._named_folders()
        counts = Counter(name for _, name in found)
        if self._namespacing:
            return {_full(path, name, counts[name]) for path, name in found}, set()
        return {*counts}, {name for name, count in counts.items() if count > 1}

    def full_names(self, name: str) -> list[str]:
        """The full names of the models of a name, where several may have it; else the name."""
        if not self._namespacing or split_name(name)[0]:
            return [name]
        owners = self._owners(name)
        return [_full(path, name, len(owners)) for path in owners] or [name]

    def _owners(self, name: str) -> list[str]:
        """The repositories that have a model of a name; none for what is no name."""
        with suppress(InvalidRequestError):
            check_name(name)
            return [each[0] for each in self._places_of(name) if self._has(*each)]
        return []

    def states(self) -> dict[str, Hashable]:
        """What each model is, for comparison, without those in more than one repository.

        A repository that cannot be read counts as it was last, and a model that could not be read
        as changed: it is tried again.
        """
        self._retry_missing()
        found = [
            (path, name, state)
            for path, place in self._places.items()
            for name, state in self._states_of(path, place).items()
        ]
        counts = Counter(name for _, name, _ in found)
        # What a step of an ensemble means changes with the names that several models have.
        twice = frozenset(name for name, count in counts.items() if count > 1)
        if not self._namespacing:
            return {n: (s, self._unread[n]) for _, n, s in found if n not in twice}
        full = {_full(path, name, counts[name]): (path, state) for path, name, state in found}
        return {name: (state, self._unread[name], twice) for name, state in full.items()}

    def _states_of(self, path: str, place: LocalFolder | RemotePlace) -> Mapping[str, Hashable]:
        try:
            self._known[path] = place.states()
            self._listed[path] = self._known[path].keys()
        except OSError as error:
            logger.error("failed to poll the model repository: %s", error)
        return self._known.get(path, {})

    def read(
        self, name: str, override: ModelOverride | None = None, scratch: Path | None = None
    ) -> ModelFiles:
        """Read one model's files; what is wrong with them is logged, and said in the error.

        The files of an `override` replace all of the model's, its configuration the model's file.
        They are written below `scratch`.
        """
        self._check_name(name)
        with _polling(name):
            if override is not None and override.files:
                return _read_files(name, override, scratch)
            try:
                own, path, folder = self._find(name)
            except OSError:
                self._unread[name] += 1
                raise
            try:
                return self._read_folder(name, own, path, folder, override)
            except BaseException:
                if folder is not None:
                    folder.remove()
                raise

    def described(self, name: str) -> ModelFiles:
        """A model as `read` finds it, of which only the configuration needs to be fetched.

        Its folder is gone, if it was a temporary one.
        """
        self._check_name(name)
        with _polling(name):
            own, path, folder = self._find(name, lambda file, _: file.endswith(".pbtxt"))
            try:
                return self._read_folder(name, own, path, None, None)
            finally:
                if folder is not None:
                    folder.remove()

    def _check_name(self, name: str) -> None:
        check_name(split_name(name)[1] if self._namespacing else name)

    def _read_folder(
        self,
        name: str,
        own: str,
        path: Path,
        folder: ScratchFolder | None,
        override: ModelOverride | None,
    ) -> ModelFiles:
        """Read a model of the repository `own`, whose folder has come to `path`."""
        if override is None or override.config is None:
            config = self._read_config(path)
        else:
            config = parse_override(override.config)
            if not override.trusted:
                refuse_foreign_code(config, partial(self._read_config, path))
        short = split_name(name)[1]
        if config is not None and short != path.name:  # registered under another name
            config = replace(config, name=short)
        with naming_misplaced_config(path, config is not None):
            polled = _polled(config or ModelConfig(), short, path)
        if self._namespacing:
            polled = replace(self._with_namespaces(polled, own), name=name)
        versions = _versions(path)
        if override is not None and override.versions:
            polled = replace(polled, version_policy=_only(override.versions, versions, name))
        namespace = _namespace(own) if self._namespacing else ""
        return ModelFiles(name, path, polled, config is not None, versions, folder, namespace)

    def _with_namespaces(self, config: ModelConfig, own: str) -> ModelConfig:
        """The configuration, whose steps name models of its own repository first."""
        if (scheduling := config.ensemble_scheduling) is None:
            return config
        owners = {step.model_name: self._owners(step.model_name) for step in scheduling.step}
        own_twice = {name for name, found in owners.items() if len(found) > 1 and own in found}
        steps = tuple(
            replace(step, model_namespace=_namespace(own))
            if step.model_name in own_twice and not step.model_namespace
            else step
            for step in scheduling.step
        )
        return replace(config, ensemble_scheduling=replace(scheduling, step=steps))

    def _find(self, name: str, needed: Needed | None = None) -> _Located:
        """The folder of a model, which is a temporary one for a repository that lies elsewhere.

        Of what lies elsewhere only what is `needed` is fetched, by default everything.
        """
        found = self._find_in_places(name, needed)
        if found is None and self.missing:
            self._retry_missing()
            found = self._find_in_places(name, needed)
        if found is None:
            unread = "; ".join(str(error) for error in self.missing.values())
            raise _not_polled(name, "model not found in any model repository.", unread)
        return found

    def _find_in_places(self, name: str, needed: Needed | None) -> _Located | None:
        only = () if needed is None else (needed,)
        places = list(self._places_of(name))
        if len(places) > 1:
            places = [each for each in places if self._has(*each)]
        if len(places) > 1 and self._namespacing:
            raise _not_polled(name, "ambiguous", ambiguous_name(name, len(places)))
        if len(places) > 1:
            raise _not_polled(name, "not unique across all model repositories")
        for own, place, folder in places:
            if isinstance(place, LocalFolder):
                if place.has(folder):
                    return own, place.path / folder, None
            elif (taken := place.take(folder, *only)) is not None:
                path, root = taken
                return own, path, None if root is None else ScratchFolder(path, root=root)
        return None

    def _has(self, path: str, place: LocalFolder | RemotePlace, folder: str) -> bool:
        """Whether a repository has a model; whether it had it last, where it cannot be read now."""
        if isinstance(place, LocalFolder):
            return place.has(folder)
        try:
            return folder in self._folders(path, place)
        except OSError as error:
            logger.error("failed to poll the model repository: %s", error)
            return folder in self._listed[path]

    def _places_of(self, name: str) -> Iterator[tuple[str, LocalFolder | RemotePlace, str]]:
        """Each repository that may have a model, and the folder's name there."""
        namespace, short = split_name(name) if self._namespacing else ("", name)
        for path, place in self._places.items():
            if namespace and namespace != _namespace(path):
                continue
            renamed = self._renamed.get(path, {})
            given = next((folder for folder, other in renamed.items() if other == short), None)
            if given is not None or short not in renamed:
                yield path, place, given or short

    def _read_config(self, path: Path) -> ModelConfig | None:
        """The configuration in the model's file; `None` if the file does not exist."""
        file = self.config_file(path)
        return None if file is None else read_pbtxt(file)

    def config_file(self, path: Path) -> Path | None:
        """The file of a model's configuration in its folder, if there is one."""
        return config_file(path, self._config_name)


def config_file(folder: Path, config_name: str) -> Path | None:
    """The file of a model's configuration in its folder, if there is one; see `ModelRepository`."""
    custom = folder / "configs" / f"{config_name}.pbtxt"
    return next((file for file in (custom, folder / CONFIG_FILE) if file.exists()), None)


def _read_files(name: str, override: ModelOverride, scratch: Path | None) -> ModelFiles:
    """Read a model whose files came with the load request."""
    if override.config is None:
        raise ModelLoadError("Load parameter 'config' must be specified for model file override")
    folder = ScratchFolder.create(scratch)
    try:
        override.write(folder.path)
        config = _polled(parse_override(override.config), split_name(name)[1], folder.path)
        config = replace(config, name=name)
        return ModelFiles(name, folder.path, config, True, _versions(folder.path), folder)
    except BaseException:
        folder.remove()
        raise


def _only(asked: frozenset[int], versions: Iterable[int], name: str) -> VersionPolicy:
    """The policy that selects the versions that a request names; raises for one that is not."""
    if missing := sorted(asked - {*versions}):
        raise InvalidRequestError(f"model '{name}' has no version {missing[0]}")
    return VersionPolicy(specific=SpecificVersions(tuple(sorted(asked))))


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


def _not_polled(name: str, problem: str, reason: str = "") -> InternalError:
    logger.error("failed to poll model '%s': %s%s", name, problem, reason and f" {reason}")
    return _poll_failure(name, reason and f": {reason}")


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
    if wrong := wrong_name(name):
        raise InvalidRequestError(f"invalid model name {shortened(name)!r}: {wrong}")


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


def _named(path: Path | str) -> str:
    """The key of a repository: its address, also one with a slip, or its folder."""
    return str(path).rstrip("/") if "://" in str(path) else str(Path(path))


def _namespace(path: str) -> str:
    """The namespace of a repository: its address, or its path from the root."""
    return path if "://" in path else str(Path(path).absolute())


def _full(path: str, name: str, count: int) -> str:
    """The name of a model, of which so many repositories have one."""
    return name if count < 2 else full_name(_namespace(path), name)


def _file_names(path: Path) -> frozenset[str]:
    """The file names in a model's first folder, taken as typical of all versions."""
    first = next(iter(subfolders(path)), None)
    return frozenset() if first is None else frozenset(p.name for p in first.iterdir())


def _versions(path: Path) -> dict[int, Path]:
    """The version folders of a model, ascending."""
    versions: dict[int, Path] = {}
    for folder in subfolders(path):
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
