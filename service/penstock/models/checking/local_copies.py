"""Folders of repositories for a check; of those that lie elsewhere, the models are fetched."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.core.errors import InferenceError, InternalError, ModelLoadError
from penstock.models.config.pbtxt import read_pbtxt
from penstock.models.loading.dependencies import needs_of
from penstock.models.remote.address import scheme_of
from penstock.models.repository.places import LocalFolder, RemotePlace
from penstock.models.repository.repository import CONFIG_FILE

_LARGE = 1 << 24
"""Bytes of a file that is weights; its content is not looked at."""
_WITH_FACTS = (".gguf", ".pb")
"""Files that say something of the model, besides its weights."""


def _is_read(path: str, size: int) -> bool:
    """Whether the check looks into a file."""
    return size <= _LARGE or path.endswith(_WITH_FACTS)


@dataclass(frozen=True, slots=True)
class LocalCopies:
    """The folders by what they are called, and the models that could not be fetched."""

    roots: dict[Path, str] = field(default_factory=dict)
    unfetched: dict[str, InferenceError] = field(default_factory=dict)


@contextmanager
def local_copies(
    paths: Sequence[str], names: Collection[str], open_remote: Callable[[str], RemotePlace]
) -> Iterator[LocalCopies]:
    """The repositories on the disk until the end; of remote ones all models, or `names` and those
    that they need. Raises `InferenceError` for what is no repository, and `OSError`.
    """
    copies = LocalCopies()
    with ExitStack() as stack:
        for path in dict.fromkeys(paths):
            if scheme_of(path):
                root = Path(stack.enter_context(TemporaryDirectory(prefix="penstock-check-")))
                _Fetching(open_remote(path), root, copies, stack).run(names)
                copies.roots[root] = path
            else:
                copies.roots[LocalFolder(path).path] = path
        yield copies


class _Fetching:
    """Brings the models of one place below `root`, as links to where their files lie."""

    def __init__(
        self, place: RemotePlace, root: Path, copies: LocalCopies, stack: ExitStack
    ) -> None:
        self._place, self._root, self._copies, self._stack = place, root, copies, stack

    def run(self, names: Collection[str]) -> None:
        known = set(self._place.folders())
        todo = (known & set(names)) if names else known
        done: set[str] = set()
        while todo:
            for name in sorted(todo):
                self._fetch(name)
            done |= todo
            todo = {need for name in todo for need in self._needs(name)} & known - done

    def _fetch(self, name: str) -> None:
        try:
            taken = self._place.take(name, _is_read)
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

    def _needs(self, name: str) -> Collection[str]:
        with suppress(InferenceError, OSError):  # which the check tells
            return needs_of(read_pbtxt(self._root / name / CONFIG_FILE))
        return ()
