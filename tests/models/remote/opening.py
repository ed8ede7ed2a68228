"""Opens repositories of the store of tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.object_store import ObjectStore
from penstock.models.remote.remote_repositories import RemoteRepositories
from penstock.models.repository.places import RemotePlace

KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}

SCHEMES = ("s3", "gs", "as")

MODEL = {"m/config.pbtxt": "config", "m/1/model.onnx": "one", "m/2/data/weights": "two"}
"""The objects of a model."""


@contextmanager
def opened(
    store: ObjectStore, cache: Path, limit: int = 0, scheme: str = "s3"
) -> Iterator[RemotePlace]:
    """The repository of all objects of a store, which is closed at the end."""
    with remote(cache, limit, **variables_of(store)) as repositories:
        yield repositories.open(address_of(store, scheme))


def address_of(store: ObjectStore, scheme: str) -> str:
    """The store's bucket by the address of a cloud."""
    return {"s3": store.address, "gs": "gs://bucket", "as": "as://account/bucket"}[scheme]


def variables_of(store: ObjectStore) -> dict[str, str]:
    """What names the store's server to all clouds' repositories."""
    return {
        "STORAGE_EMULATOR_HOST": store.url,
        "AZURE_STORAGE_ENDPOINT": store.url,
        "AZURE_STORAGE_KEY": "a2V5",
    }


@contextmanager
def remote(cache: Path, limit: int = 0, **variables: str) -> Iterator[RemoteRepositories]:
    """What opens addresses, closed at the end."""
    environment = {**KEYS, "HOME": str(cache), **variables}
    repositories = RemoteRepositories(str(cache), limit, environment)
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


def put(store: ObjectStore, objects: dict[str, str]) -> None:
    """Store objects by their keys."""
    for key, content in objects.items():
        store.put(key, content)


def folder_of(repository: RemotePlace, model: str) -> Path:
    """The folder of a model that is taken."""
    taken = repository.take(model)
    assert taken is not None
    return taken[0]
