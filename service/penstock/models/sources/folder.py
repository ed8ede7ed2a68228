"""`Folder`: what lies in a folder, here or on the hub; files are fetched once they are chosen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from penstock.models.remote.hub_repository import HubRepository
from penstock.models.sources.draft import SourceError

_LONGEST_JSON = 16 << 20


class Folder(Protocol):
    """Files of one model; calls may take long, and raise `OSError`."""

    text: str
    """As errors name it."""
    name: str
    """By default that of the model."""

    def names(self) -> Sequence[str]:
        """The paths of all files, from the folder on."""

    def take(self, names: Iterable[str]) -> Mapping[str, Path]:
        """Files by their paths, on the disk."""


class LocalFolder:
    """A folder of this machine."""

    def __init__(self, path: Path, name: str) -> None:
        self.text, self.name, self._path = str(path), name, path

    def names(self) -> list[str]:
        """All files but hidden ones, three folders deep."""
        found = [
            path.relative_to(self._path)
            for depth in ("*", "*/*", "*/*/*")
            for path in self._path.glob(depth)
            if path.is_file()
        ]
        visible = (each for each in found if not any(part.startswith(".") for part in each.parts))
        return sorted(each.as_posix() for each in visible)

    def take(self, names: Iterable[str]) -> dict[str, Path]:
        """The files where they are."""
        return {name: self._path / name for name in names}


class HubFolder:
    """A commit of a repository of the hub; the hub's library keeps what it fetches.

    Raises `OSError`, and `ModelLoadError` for names of files that are no paths.
    """

    def __init__(self, repository: HubRepository) -> None:
        self._repository = repository
        self._commit, self._names = repository.listing()
        self._here: set[str] = set()
        self._path = Path()
        self.text = repository.address.text
        self.name = repository.address.name.rpartition("/")[2]

    def names(self) -> list[str]:
        """All files of the commit that is asked for."""
        return self._names

    def take(self, names: Iterable[str]) -> dict[str, Path]:
        """The files in the cache of the hub's library; with the first all that is small."""
        wanted = {*names}
        missing = wanted - self._here
        if not self._here:
            missing |= {each for each in self._names if each.endswith(".json")}
        if missing:
            self._path = self._repository.fetch(self._commit, missing)
            self._here |= missing
        return {name: self._path / name for name in wanted}


def json_object(path: Path, kind: type[Any] = dict) -> Any:
    """What a file of JSON holds, which is of that kind; raises `SourceError`, and `OSError`."""
    try:
        if path.stat().st_size > _LONGEST_JSON:
            raise SourceError(f"'{path}' has more than {_LONGEST_JSON:,} bytes")
        found = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise SourceError(f"there is no '{path}'") from error
    except (ValueError, RecursionError) as error:
        raise SourceError(f"'{path}' is not JSON: {error}") from error
    if not isinstance(found, kind):
        raise SourceError(f"'{path}' is not what a file of this name holds")
    return found
