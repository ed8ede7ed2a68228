"""`RemoteRepositories`: opens repositories by their addresses, over one cache on the disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.core.errors import ModelLoadError
from penstock.models.remote.address import BucketAddress, scheme_of
from penstock.models.remote.bucket import Bucket
from penstock.models.remote.bucket_repository import BucketRepository
from penstock.models.remote.credentials import Credentials
from penstock.models.remote.downloads import Downloads, Traffic
from penstock.models.remote.fetch_process import FetchProcesses
from penstock.models.remote.hub_repository import HubAddress, HubRepository
from penstock.models.remote.object_cache import CacheError, ObjectCache
from penstock.models.remote.store_thread import StoreThread

_MOUNTS = {
    "s3": "TRITON_AWS_MOUNT_DIRECTORY",
    "gs": "TRITON_GCS_MOUNT_DIRECTORY",
    "as": "TRITON_AZURE_MOUNT_DIRECTORY",
}
"""Variables that name the folder for local copies (R-33), by scheme."""


class RemoteRepositories:
    """The repositories that lie elsewhere, their caches and the counts of what was fetched.

    `folder` is that of the cache; empty for the one that the environment names, or the user's.
    A cache holds `limit` bytes at most, 0 for no limit.
    """

    def __init__(self, folder: str, limit: int, environment: Mapping[str, str]) -> None:
        self._folder, self._limit, self._environment = folder, limit, environment
        self._downloads: dict[Path, Downloads] = {}
        self._thread: StoreThread | None = None
        self._opened: list[ObjectCache] = []
        self._processes = FetchProcesses()
        self.traffic = Traffic()
        self.used = False
        """Whether any repository in a bucket was to be opened."""

    def open(self, text: str) -> BucketRepository | HubRepository:
        """The repository of an address.

        Raises `InvalidRequestError` for one that is none, `UnsupportedError` without the library
        that reads it, `ModelLoadError` for a cache that cannot be written, `OSError`.
        """
        self._thread = self._thread or StoreThread()
        if scheme_of(text) == "hf":
            return HubRepository(HubAddress.parse(text), self._thread)
        address = BucketAddress.parse(text)
        self.used = True
        home = Path(self._environment.get("HOME") or Path.home())
        bucket = Bucket(address, Credentials(self._environment, home), self._thread)
        folder = self._cache_folder(scheme_of(text), home)
        if folder not in self._downloads:
            try:
                cache = ObjectCache(folder, self._thread, self._limit)
            except CacheError as error:
                raise ModelLoadError(str(error)) from error
            self._downloads[folder] = Downloads(cache, self.traffic, self._processes)
        return BucketRepository(bucket, self._downloads[folder])

    def caches(self) -> list[ObjectCache]:
        """The caches of buckets that there are, to see what they hold."""
        home = Path(self._environment.get("HOME") or Path.home())
        folders = dict.fromkeys(self._cache_folder(scheme, home) for scheme in (*_MOUNTS, ""))
        self._thread = self._thread or StoreThread()
        found = [ObjectCache(each, self._thread) for each in folders if (each / "names").is_dir()]
        self._opened += found
        return found

    def expect_loads(self) -> None:
        """Have a process ready that fetches for the next load, if there are buckets."""
        if self.used:
            self._processes.start_ahead()

    def stop(self) -> None:
        """Stop what is being asked and fetched; it goes on from there at the next start."""
        self._processes.close()
        if self._thread is not None:
            self._thread.stop()

    @property
    def has_left(self) -> bool:
        """Whether a call that was stopped goes on, on a thread that may never end."""
        return self._thread is not None and self._thread.has_left

    def close(self) -> None:
        """Stop, and remove what models were served from."""
        self._processes.close()
        if self._thread is not None:
            self._thread.close()
        for cache in (*self._opened, *(each.cache for each in self._downloads.values())):
            cache.close()

    def _cache_folder(self, scheme: str, home: Path) -> Path:
        if folder := self._folder or self._environment.get(_MOUNTS.get(scheme, "")):
            return Path(folder)
        caches = self._environment.get("XDG_CACHE_HOME") or home / ".cache"
        return Path(caches, "penstock", "repository")
