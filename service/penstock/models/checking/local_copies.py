"""Folders of repositories for a check; of those that lie elsewhere, the models are fetched."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.core.errors import InferenceError, InternalError, ModelLoadError
from penstock.models.config.pbtxt import read_pbtxt
from penstock.models.loading.dependencies import needs_of
from penstock.models.remote.address import scheme_of
from penstock.models.repository.places import LocalFolder, RemotePlace
from penstock.models.repository.repository import config_file

_LARGE = 1 << 24
"""Bytes of a file that is weights; its content is not looked at."""


@dataclass(frozen=True, slots=True)
class LocalCopies:
    """The folders by what they are called, the models that could not be fetched, and the files
    that were left out, which are of zeros.
    """

    roots: dict[Path, str] = field(default_factory=dict)
    unfetched: dict[str, InferenceError] = field(default_factory=dict)
    left_out: set[Path] = field(default_factory=set)


@contextmanager
def local_copies(
    paths: Sequence[str],
    names: Collection[str],
    open_remote: Callable[[str], RemotePlace],
    config_name: str = "",
) -> Iterator[LocalCopies]:
    """The repositories on the disk until the end; of remote ones all models, or `names` and those
    that they need, by the configurations that `config_name` chooses. Raises `InferenceError` for
    what is no repository, and `OSError`.
    """
    copies = LocalCopies()
    places: list[_Fetching] = []
    with ExitStack() as stack:
        for path in dict.fromkeys(paths):
            if scheme_of(path):
                root = Path(stack.enter_context(TemporaryDirectory(prefix="penstock-check-")))
                places.append(_Fetching(open_remote(path), root, copies, stack))
                copies.roots[root] = path
            else:
                copies.roots[LocalFolder(path).path] = path
        todo = {*names} or {name for place in places for name in place.known}
        done: set[str] = set()
        while todo:
            for place in places:
                place.fetch(todo)
            done |= todo
            folders = (root / name for root in copies.roots for name in todo)
            todo = {need for each in folders for need in _needs(each, config_name)} - done
        yield copies


def _needs(folder: Path, config_name: str) -> Collection[str]:
    """The models that one needs, by its configuration."""
    with suppress(InferenceError, OSError):  # which the check tells
        config = config_file(folder, config_name)
        return () if config is None else needs_of(read_pbtxt(config))
    return ()


class _Fetching:
    """Brings models of one place below `root`, as links to where their files lie."""

    def __init__(
        self, place: RemotePlace, root: Path, copies: LocalCopies, stack: ExitStack
    ) -> None:
        self._place, self._root, self._copies, self._stack = place, root, copies, stack
        self.known = frozenset(place.folders())

    def fetch(self, names: Collection[str]) -> None:
        """Bring those of these models that the place has."""
        for name in sorted(self.known.intersection(names)):
            self._fetch(name)

    def _fetch(self, name: str) -> None:
        try:
            taken = self._place.take(name, partial(self._is_wanted, name))
        except ModelLoadError as error:
            self._copies.unfetched[name] = error
            return
        except OSError as error:
            self._copies.unfetched[name] = InternalError(str(error))
            return
        if taken is not None:
            path, temporary = taken
            if temporary is not None:
                self._stack.callback(shutil.rmtree, temporary, ignore_errors=True)
            (self._root / name).symlink_to(path.absolute())

    def _is_wanted(self, name: str, path: str, size: int) -> bool:
        """Whether a file of a model is fetched, by its size."""
        file = self._root / name / path
        if size > _LARGE:
            self._copies.left_out.add(file)
            return False
        self._copies.left_out.discard(file)
        return True
