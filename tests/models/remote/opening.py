"""Opens repositories of the store of tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.object_store import ObjectStore
from penstock.models.remote.remote_repositories import RemoteRepositories
from penstock.models.repository.places import RemotePlace

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


@contextmanager
def opened(store: ObjectStore, cache: Path, limit: int = 0) -> Iterator[RemotePlace]:
    """The repository of all objects of a store, which is closed at the end."""
    with remote(cache, limit) as repositories:
        yield repositories.open(store.address)


@contextmanager
def remote(cache: Path, limit: int = 0) -> Iterator[RemoteRepositories]:
    """What opens addresses, closed at the end."""
    repositories = RemoteRepositories(str(cache), limit, {**KEYS, "HOME": str(cache)})
    try:
        yield repositories
    finally:
        repositories.close()


def files_of(taken: tuple[Path, Path | None] | None) -> dict[str, bytes]:
    """The files of a model's folder by their paths."""
    assert taken is not None
    folder = taken[0]
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}
