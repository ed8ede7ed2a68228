"""`HubRepository`: the models of a repository on the Hugging Face Hub, as local folders.

`huggingface_hub` fetches, keeps and finds files again below `HF_HOME`; its variables hold:
`HF_TOKEN`, `HF_ENDPOINT`, and `HF_HUB_OFFLINE`, which serves what it has.
"""

from __future__ import annotations

import glob
import logging
import os
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from penstock.core.errors import InvalidRequestError, ModelLoadError, UnsupportedError
from penstock.core.file_names import clash, wrong_name
from penstock.models.remote.store_thread import StoppedError, StoreThread

logger = logging.getLogger(__name__)

_ADDRESS = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?/?")


class HubError(OSError):
    """The hub refused, or could not be reached; one line, which says what to do."""


@dataclass(frozen=True, slots=True)
class HubAddress:
    """A repository of the hub; without a `revision`, as its main branch is now."""

    text: str
    name: str
    revision: str | None

    @classmethod
    def parse(cls, text: str) -> HubAddress:
        """Raises `InvalidRequestError`."""
        found = _ADDRESS.fullmatch(text)
        if found is None:
            raise InvalidRequestError(
                f"model repository '{text}' is no address: hf://OWNER/NAME or"
                " hf://OWNER/NAME@REVISION"
            )
        return cls(text, found[1], found[2])


class HubRepository:
    """Lists models, and brings them to the disk; each call asks the hub, on any thread.

    A commit is whole: what a call lists is what it takes. With a `thread`, its stop ends calls,
    which raise `StoppedError`.
    """

    def __init__(self, address: HubAddress, thread: StoreThread | None = None) -> None:
        self.address = address
        self._call = _now if thread is None else thread.call
        try:
            import huggingface_hub
            import huggingface_hub.errors
        except ImportError as error:
            raise UnsupportedError(
                f"model repository '{address.text}' needs huggingface_hub: pip install"
                " 'penstock[cloud]'"
            ) from error
        self._hub: Any = huggingface_hub

    def folders(self) -> list[str]:
        """The names of the models' folders; raises `OSError`."""
        return sorted(self.states())

    def take(
        self, folder: str, needed: Callable[[str, int], bool] | None = None
    ) -> tuple[Path, Path | None] | None:
        """The folder of a model in the cache of the hub's library, which keeps it whole.

        Raises `OSError`, and `ModelLoadError` for files whose names are no paths.
        """
        commit, files = self._listed()
        models = _by_models(files)
        if folder not in models:
            return None
        self._check_names([f"{folder}/{path}" for path, _ in models[folder]])
        return Path(self._downloaded(commit, [f"{glob.escape(folder)}/*"]), folder), None

    def states(self) -> dict[str, Hashable]:
        """What each model is, for comparison: the paths and contents of its files."""
        return dict(_by_models(self._listed()[1]))

    def listing(self) -> tuple[str, list[str]]:
        """The commit, empty where the hub may not be asked, and the paths of all files.

        Raises `OSError`, and `ModelLoadError` for names that are no paths.
        """
        commit, files = self._listed()
        self._check_names([*files])
        return commit, sorted(files)

    def fetch(self, commit: str, names: Iterable[str]) -> Path:
        """A folder with these files of a listing, in the cache of the hub's library.

        Raises `OSError`.
        """
        return self._downloaded(commit, [glob.escape(name) for name in names])

    def _check_names(self, paths: Sequence[str]) -> None:
        for path in sorted(paths):
            if wrong := wrong_name(path):
                raise ModelLoadError(
                    f"the file {path[:300]!r} of '{self.address.text}' is no path: {wrong}"
                )
        if path := clash(sorted(paths)):
            raise ModelLoadError(
                f"the file '{path}' of '{self.address.text}' lies below another, or is its folder"
            )

    def _downloaded(self, commit: str, patterns: list[str]) -> Path:
        with self._explained():
            path = self._call(
                partial(
                    self._hub.snapshot_download,
                    self.address.name,
                    revision=commit or self.address.revision,
                    allow_patterns=patterns,
                    local_files_only=not commit,
                )
            )
            if commit:
                self._remember(Path(path), commit)
        return Path(path)

    def _remember(self, snapshot: Path, commit: str) -> None:
        """Record which commit the revision is, as the library does of what is asked by its name.

        A commit is asked for, so that it is the listed one; without the hub the name must lead
        there.
        """
        revision = self.address.revision or "main"
        ref = snapshot.parents[1] / "refs" / revision
        if revision == commit or wrong_name(revision):
            return
        with suppress(OSError):  # its folder may be read-only, and have the files all the same
            if not (ref.exists() and ref.read_text() == commit):
                ref.parent.mkdir(parents=True, exist_ok=True)
                coming = ref.with_name(f"{ref.name}.{os.getpid()}")
                coming.write_text(commit)
                os.replace(coming, ref)

    def _listed(self) -> tuple[str, dict[str, str]]:
        """The commit, empty where the hub may not be asked, and what the files' contents are."""
        with self._explained():
            try:
                ask = partial(self._hub.HfApi().model_info, self.address.name, files_metadata=True)
                found = self._call(partial(ask, revision=self.address.revision))
            except self._hub.errors.OfflineModeIsEnabled:
                return "", self._kept()
        return found.sha, {each.rfilename: str(each.blob_id) for each in found.siblings}

    def _kept(self) -> dict[str, str]:
        """The files that were fetched before, of the revision."""
        revision = self.address.revision or "main"
        files = dict[str, str]()
        for kept in _kept_repositories(self._hub):
            if kept.repo_id != self.address.name or kept.repo_type != "model":
                continue
            for each in kept.revisions:
                if revision == each.commit_hash or revision in each.refs:
                    for file in each.files:
                        path = file.file_path.relative_to(each.snapshot_path)
                        files[path.as_posix()] = str(file.blob_path)
        if not files:
            raise HubError(
                f"'{self.address.text}': the hub may not be asked (HF_HUB_OFFLINE), and nothing of"
                f" the revision '{revision}' was fetched before"
            )
        return files

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise `HubError` for what the library raises, whose texts have many lines."""
        errors = self._hub.errors
        try:
            yield
        except (HubError, StoppedError):
            raise
        except errors.GatedRepoError as error:
            raise HubError(
                f"'{self.address.text}': its owner must admit you: ask on its page, and set"
                " HF_TOKEN"
            ) from error
        except errors.RepositoryNotFoundError as error:
            raise HubError(
                f"'{self.address.text}': the hub has no such repository, or it is a private one"
                " and HF_TOKEN is not set"
            ) from error
        except errors.RevisionNotFoundError as error:
            raise HubError(
                f"'{self.address.text}': there is no revision '{self.address.revision}'"
            ) from error
        except errors.LocalEntryNotFoundError as error:
            raise HubError(
                f"'{self.address.text}': the hub cannot be asked, and it was not fetched before"
            ) from error
        except Exception as error:  # of the library's HTTP client, too
            first = str(error).partition("\n")[0] or type(error).__name__
            raise HubError(f"'{self.address.text}': {first}") from error


def _now(function: Callable[[], Any]) -> Any:
    return function()


def _by_models(files: Mapping[str, str]) -> dict[str, frozenset[tuple[str, str]]]:
    """The files of each folder that is a model, and what their contents are."""
    models = defaultdict[str, set[tuple[str, str]]](set)
    for name, content in files.items():
        folder, slash, path = name.partition("/")
        if slash and not folder.startswith("."):
            models[folder].add((path, content))
    return {name: frozenset(found) for name, found in models.items()}


def _kept_repositories(library: Any) -> Iterable[Any]:
    """Repositories in the library's cache; none before it has a folder for that."""
    try:
        found: Iterable[Any] = library.scan_cache_dir().repos
    except library.errors.CacheNotFound:
        return ()
    return found


class KeptModel(NamedTuple):
    """A repository of the hub that is on this disk: size in bytes, and the time of its last use."""

    address: str
    size: int
    used: float
    commits: tuple[str, ...]


def kept_models() -> list[KeptModel]:
    """What the hub's library keeps; nothing where it is not installed."""
    if find_spec("huggingface_hub") is None:
        return []
    import huggingface_hub
    import huggingface_hub.errors

    return sorted(
        KeptModel(
            f"hf://{repo.repo_id}",
            repo.size_on_disk,
            repo.last_accessed,
            tuple(each.commit_hash for each in repo.revisions),
        )
        for repo in _kept_repositories(huggingface_hub)
        if repo.repo_type == "model"
    )


def forget_models(models: Iterable[KeptModel]) -> None:
    """Remove what the hub's library keeps of these."""
    import huggingface_hub

    commits = [commit for model in models for commit in model.commits]
    huggingface_hub.scan_cache_dir().delete_revisions(*commits).execute()
