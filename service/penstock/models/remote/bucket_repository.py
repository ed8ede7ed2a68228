"""`BucketRepository`: the models of a repository in an object store, as local folders."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from penstock.core.errors import ModelLoadError
from penstock.core.file_names import folders_above, wrong_name
from penstock.models.remote.bucket import Bucket, ObjectChangedError, StoredObject
from penstock.models.remote.downloads import Downloads
from penstock.models.remote.store_thread import StoppedError

logger = logging.getLogger(__name__)

_SETTLE_SECONDS = 2.0
"""What is younger is listed once more: it may be half of what somebody uploads."""
_LISTINGS = 20
"""Of a model that changes while it is fetched."""

State = bytes
"""The digest of path, ETag and size of each object of a model: of 100,000 they take 30 MB."""


def _all_are(path: str, size: int) -> bool:
    """Needed, as to serve a model."""
    return True


class BucketRepository:
    """Lists models, and brings them to the disk; each call asks the store, on any thread.

    A listing is the truth: a model is what two listings in a row say.
    """

    def __init__(self, bucket: Bucket, downloads: Downloads) -> None:
        self._bucket, self._downloads = bucket, downloads
        self._last: dict[str, State] = {}
        self._settled: dict[str, State] | None = None
        self._looked = False
        self._ignored = set[str]()
        self._seen = frozenset[str]()

    def folders(self) -> list[str]:
        """The names of the models' folders; raises `OSError`."""
        folders, objects = self._bucket.top()
        if not self._looked:
            self._looked = True
            self._warn(folders, [each.path for each in objects])
        self._warn_of_names(folders)
        models = [name for name in folders if _is_model(name)]
        self._seen = frozenset(models)
        return models

    def _warn_of_names(self, folders: Iterable[str]) -> None:
        """Tell once of keys that are in no folder that a model may have."""
        for name in folders:
            if name not in self._ignored and (wrong := _no_folder(name)):
                self._ignored.add(name)
                logger.warning(
                    "ignore the keys %a... of '%s', which are no paths: %s",
                    f"{name[:300]}/",
                    self._bucket.address.text,
                    wrong,
                )

    def _warn(self, folders: Sequence[str], objects: Sequence[str]) -> None:
        """Tell of what is likely no repository."""
        address = self._bucket.address
        if "config.pbtxt" in objects:
            above = address.text.rstrip("/").rpartition("/")[0]
            logger.warning(
                "'%s' has a config.pbtxt of its own: is it a model? Its repository is '%s'",
                address.text,
                above,
            )
        elif address.prefix and not folders and not objects:
            logger.warning("there is nothing at '%s': is its path right?", address.text)

    def take(
        self, folder: str, needed: Callable[[str, int], bool] = _all_are
    ) -> tuple[Path, Path | None] | None:
        """A folder on the disk with the files of a model; `None` if there are none.

        What is not `needed`, by path and size, is not fetched: zeros are in its place. Who has no
        more use for the folder removes the second one. Raises `OSError`, and
        `ModelLoadError` for keys that are no paths and for what does not fit on the disk.
        """
        if wrong := wrong_name(folder):
            raise ModelLoadError(f"the model's name is no path: {wrong}")
        return self._taken(folder, partial(self._bucket.objects, folder), needed)

    def take_files(self, name: str, needed: Callable[[str, int], bool]) -> tuple[Path, Path] | None:
        """A folder on the disk with objects directly below the repository, as `take`.

        They are those that are `needed`, and one of this name among them; `None` if it is not
        there.
        """

        def listed() -> list[StoredObject]:
            objects = [each for each in self._bucket.top()[1] if needed(each.path, each.size)]
            return objects if any(each.path == name for each in objects) else []

        folder = self._bucket.address.key().rpartition("/")[2] or self._bucket.address.bucket
        return self._taken(folder, listed, _all_are)

    def _taken(
        self,
        folder: str,
        listed: Callable[[], list[StoredObject]],
        needed: Callable[[str, int], bool],
    ) -> tuple[Path, Path] | None:
        what = f"{self._bucket.address.text} {folder}"
        objects = listed()
        for _ in range(_LISTINGS):
            if not objects:
                return None
            before, (files, folders) = objects, _sorted_out(objects)
            wanted = [each for each in files if needed(each.path, each.size)]
            cache = self._downloads.cache
            try:
                with cache.explained(), cache.lay_out(folder, folders) as layout:
                    self._downloads.fetch(self._bucket, wanted, what, layout)
                    self._settle(before)
                    objects = listed()
                    if _state(objects) == _state(before):
                        _fill(layout.folder, set(files).difference(wanted))
                        layout.kept = True
                        return layout.folder, layout.folder.parent
            except ObjectChangedError as error:
                objects = listed()
                if _state(objects) == _state(before):
                    raise ModelLoadError(f"{error}, which was listed") from error
            except FileNotFoundError as error:  # another server has made room for its own models
                logger.debug("%s: %s; fetched again", what, error)
        raise ModelLoadError(
            f"its objects changed {_LISTINGS} times while they were fetched: somebody writes there,"
            " or removes them from the cache"
        )

    def states(self) -> dict[str, Hashable]:
        """What each model is, for comparison; a change counts once two calls have seen it."""
        found = self._listed()
        if self._settled is None:
            self._settled = found
        else:
            known, last = self._settled, self._last
            settled = {
                name: found[name] if last.get(name) == found[name] else known.get(name)
                for name in found
            }
            settled |= {name: known[name] for name in known.keys() - found.keys() if name in last}
            self._settled = {name: state for name, state in settled.items() if state is not None}
        self._last = found
        return dict(self._settled)

    def _listed(self) -> dict[str, State]:
        grouped = groupby(self._bucket.objects(""), key=lambda each: each.path.partition("/")[:2])
        found = {folder: _state(of_model) for (folder, slash), of_model in grouped if slash}
        self._warn_of_names(found)
        states = {folder: state for folder, state in found.items() if _is_model(folder)}
        if states.keys() - self._seen:  # the library takes the key '/m/x' for 'm/x'
            self.folders()
        return {folder: state for folder, state in states.items() if folder in self._seen}

    def _settle(self, objects: list[StoredObject]) -> None:
        """Wait until the newest object is no longer new; a time of whole seconds is cut off, so
        that the object may be as young as the end of its second.
        """
        newest = max(each.changed for each in objects)
        cut = 1 if newest == int(newest) else 0
        age = time.time() - newest - cut
        if -cut <= age < _SETTLE_SECONDS and self._bucket.thread.wait(_SETTLE_SECONDS - age):
            raise StoppedError


def _fill(folder: Path, missing: Iterable[StoredObject]) -> None:
    """Make files of zeros of the objects' sizes, which take no room on the disk."""
    for each in missing:
        with (folder / each.path).open("xb") as file:
            file.truncate(each.size)


def _is_model(folder: str) -> bool:
    return not (folder.startswith(".") or folder == "__pycache__" or _no_folder(folder))


def _no_folder(name: str) -> str:
    """Why no folder has the name, not even one that a file system refuses; empty for others.

    Models with other names that are no paths are refused when they are loaded.
    """
    return wrong_name(name) if name in ("", ".", "..") or not name.isprintable() else ""


def _state(objects: Iterable[StoredObject]) -> State:
    digest = hashlib.sha256()
    for each in objects:
        digest.update(repr((each.key, each.e_tag, each.size)).encode())
    return digest.digest()


def _sorted_out(objects: Sequence[StoredObject]) -> tuple[list[StoredObject], list[str]]:
    """The objects that are files, and all folders.

    Empty objects below which others lie are marks of folders. A model without any version has an
    empty one, which an object store could not hold (R-24). Raises `ModelLoadError`.
    """
    parents = {parent for each in objects for parent in folders_above(each.path)}
    marks = {each.path for each in objects if _is_mark(each, parents)}
    files = [each for each in objects if each.path not in marks]
    for each in objects:
        if wrong := wrong_name(each.path):
            raise ModelLoadError(f"the key {each.key[:300]!r} is no path: {wrong}")
    for each in files:
        if each.path in parents:
            raise ModelLoadError(f"the key '{each.key}' is an object and a folder of others")
    versions = [name for name in (*parents, *marks) if name.isdecimal()]
    return files, [*parents, *marks, *([] if versions else ["1"])]


def _is_mark(stored: StoredObject, parents: set[str]) -> bool:
    return not stored.size and (stored.path in parents or stored.path.isdecimal())
