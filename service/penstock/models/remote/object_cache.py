"""`ObjectCache`: objects of buckets on the disk, each once, by the SHA-256 of its content.

    names/KEY          SHA-256, time stamp and size of the object that a store, key, ETag and size
                       name, since which boot it may not be on the disk yet, and its address; its
                       own time stamp is that of the last use
    objects/SHA-256    contents, read-only
    parts/KEY          a download in progress, PARTS/KEY.done the segments of it that are whole
    runs/RUN/          what a process serves from: hard links of objects; it holds RUN.lock

Nothing in here is ever half: files are renamed into place when they are whole. Processes may share
a cache, also ones that are killed at any time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple
from urllib.parse import quote, unquote

from penstock.core.errors import ModelLoadError
from penstock.models.remote.part import Part, current_boot
from penstock.models.remote.store_thread import StoppedError, StoreThread

_LOCK_SECONDS = 0.1
"""Between looks at a lock that another holds."""

_PART_SECONDS = 7 * 24 * 3600.0
"""After which a download that was broken off is thrown away."""

_COMING_NANOSECONDS = 60 * 10**9
"""In which an object follows its name."""

_ON_DISK = "-"


class CacheError(OSError):
    """The cache cannot be written, or its disk is full; one line, which says what to do."""


class CachedObject(NamedTuple):
    """An object that was fetched: its model's address, its path there, its size in bytes, and the
    time of its last use."""

    model: str
    path: str
    size: int
    used: float
    key: str


@dataclass(slots=True)
class Layout:
    """A folder of hard links of objects: what it has is in use, so nobody removes it.

    Who has no more use for it removes the folder above it.
    """

    folder: Path
    kept: bool = False

    def link(self, path: str, stored: Path) -> None:
        """Link an object; raises `FileNotFoundError` where another process has just removed it."""
        target = self.folder / PurePosixPath(path)
        try:
            os.link(stored, target)
        except FileNotFoundError:
            raise
        except OSError:  # a file system without hard links
            shutil.copy2(stored, target)


class ObjectCache:
    """A folder of objects, of `limit` bytes at most; 0 for no limit.

    Who waits for another process ends with `thread`.

    What is served from is never removed, so the limit holds for what is not in use.
    """

    def __init__(self, folder: Path, thread: StoreThread, limit: int = 0) -> None:
        self._folder, self._limit, self._thread = folder, limit, thread
        self._run: Path | None = None
        self._run_lock: IO[bytes] | None = None
        self.renew()

    def renew(self) -> None:
        """Make the folders that are not there, or no more; raises `CacheError`."""
        with self.explained():
            for name in ("names", "objects", "parts", "runs"):
                (self._folder / name).mkdir(parents=True, exist_ok=True)
            if self._run is None or not self._run.is_dir():
                self._open_run()

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise `CacheError` for what the disk refuses, but for files that are not there."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno is None:  # it says itself what to do
                raise
            raise CacheError(
                f"the cache of model repositories '{self._folder}' cannot be written:"
                f" {error.strerror}; another folder is named by --repository-cache-dir"
            ) from error

    # -- objects ------------------------------------------------------------------------------

    def find(self, key: str) -> Path | None:
        """The object of a key, if it is here as it was stored; counts as a use."""
        name = self._folder / "names" / key
        with suppress(OSError, ValueError):
            digest, stamp, size, boot, address = name.read_text().split()
            path = self._folder / "objects" / digest
            status = path.stat()
            same = (status.st_mtime_ns, status.st_size) == (int(stamp), int(size))
            if same and boot in (_ON_DISK, current_boot()):
                os.utime(name)
                return path
            if _digest(path) == digest:  # another object of equal content was stored, or a reboot
                self._write_name(name, digest, status, address)
                return path
            path.unlink()  # somebody wrote into it, or the machine was switched off
        return None

    def sync(self, keys: Iterable[str]) -> None:
        """Wait until objects are on the disk, which takes longer than fetching them."""
        for key in keys:
            name = self._folder / "names" / key
            with suppress(OSError, ValueError):
                digest, stamp, size, boot, address = name.read_text().split()
                if boot != _ON_DISK:
                    with (self._folder / "objects" / digest).open("rb") as file:
                        os.fsync(file)
                    self._write(name, f"{digest} {stamp} {size} {_ON_DISK} {address}")

    def part(self, key: str, size: int) -> Part:
        """The download of an object, for one process and thread at a time, until it is closed."""
        path = self._folder / "parts" / key
        return Part(path, size, self._lock(path.with_suffix(".lock")))

    def store(
        self, key: str, part: Part, digest: str, address: str, layout: Layout, path: str
    ) -> None:
        """Keep a whole part, whose SHA-256 is `digest`, and link it in a layout."""
        stored = self._folder / "objects" / digest
        try:
            status = stored.stat()
            layout.link(path, stored)
            part.remove()
        except FileNotFoundError:
            status = part.seal()
            layout.link(path, part.path)  # before others see it, who may need room
        name = self._folder / "names" / key  # first: what has no name is removed
        self._write_name(name, digest, status, quote(address))
        part.move(stored)

    def check_limit(self, needed: int, here: Iterable[Path]) -> None:
        """Raise `ModelLoadError` if `needed` bytes beside the objects `here` are too many."""
        whole = needed + sum(map(_unused_size, set(here)))
        if self._limit and whole > self._limit:
            raise ModelLoadError(
                f"{whole:,} bytes are more than the cache of model repositories may hold"
                f" ({self._limit:,} bytes; --repository-cache-byte-size)"
            )

    def make_room(self, needed: int) -> None:
        """Remove what was not used for longest, for `needed` bytes more.

        Raises `CacheError` if the disk is too full.
        """
        with self._lock(self._folder / "lock"):
            if self._limit:
                self._evict(self._limit - needed)
            free = shutil.disk_usage(self._folder).free
            if needed > free:
                raise CacheError(
                    f"{needed:,} bytes do not fit on the disk of '{self._folder}', which has"
                    f" {free:,} left; another folder is named by --repository-cache-dir"
                )

    def _evict(self, bound: int) -> None:
        objects = self._folder / "objects"
        sizes = {path.name: _unused_size(path) for path in objects.iterdir()}
        names = sorted(self._names(), key=lambda name: name[0])
        for digest in sizes.keys() - {digest for _, digest, _ in names}:
            if sizes.pop(digest):
                (objects / digest).unlink(missing_ok=True)
        total = sum(sizes.values())
        old = time.time_ns() - _COMING_NANOSECONDS
        for used, digest, name in names:
            if digest not in sizes:  # it was removed, or is about to be moved into place
                if used < old:
                    name.unlink(missing_ok=True)
            elif total > bound and sizes[digest]:
                total -= sizes.pop(digest)
                (objects / digest).unlink(missing_ok=True)
                name.unlink(missing_ok=True)

    def _names(self) -> Iterator[tuple[int, str, Path]]:
        for name in (self._folder / "names").iterdir():
            with suppress(OSError, IndexError):
                yield name.stat().st_mtime_ns, name.read_text().split()[0], name

    def objects(self) -> list[CachedObject]:
        """The objects that were fetched, in the order of their addresses."""
        found = []
        for name in (self._folder / "names").iterdir():
            with suppress(OSError, ValueError):
                digest, _, size, _, address = name.read_text().split()
                if (self._folder / "objects" / digest).exists():
                    used = name.stat().st_mtime
                    repository, _, path = unquote(address).rpartition("\n")
                    model, _, inside = path.partition("/")
                    where = f"{repository}/{model}"
                    found.append(CachedObject(where, inside, int(size), used, name.name))
        return sorted(found)

    def forget(self, objects: Iterable[CachedObject]) -> None:
        """Remove objects; what serves from them keeps its own links."""
        with self._lock(self._folder / "lock"):
            for each in objects:
                (self._folder / "names" / each.key).unlink(missing_ok=True)
            named = {digest for _, digest, _ in self._names()}
            for path in (self._folder / "objects").iterdir():
                if path.name not in named:
                    path.unlink(missing_ok=True)

    # -- what is served from ------------------------------------------------------------------

    @contextmanager
    def lay_out(self, name: str, folders: Iterable[str]) -> Iterator[Layout]:
        """A new folder `name` for links of objects; removed at the end, where it is not `kept`."""
        self.renew()
        assert self._run is not None
        layout = Layout(Path(tempfile.mkdtemp(dir=self._run), name))
        try:
            for folder in ("", *folders):
                (layout.folder / folder).mkdir(parents=True, exist_ok=True)
            yield layout
        finally:
            if not layout.kept:
                shutil.rmtree(layout.folder.parent, ignore_errors=True)

    def close(self) -> None:
        """Remove what this process served from."""
        run, self._run = self._run, None
        if run is not None and self._run_lock is not None:
            shutil.rmtree(run, ignore_errors=True)
            _lock_of(run).unlink(missing_ok=True)
            self._run_lock.close()

    def _open_run(self) -> None:
        """Make this process's folder, and remove those of processes that have ended."""
        runs = self._folder / "runs"
        with self._lock(self._folder / "lock"):
            self._remove_old_parts()
            for run in [path for path in runs.iterdir() if path.is_dir()]:
                lock = _lock_of(run)
                with suppress(OSError), lock.open("ab") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(run, ignore_errors=True)
                    lock.unlink()
            if self._run_lock is not None:  # of a folder that is gone
                self._run_lock.close()
            self._run = Path(tempfile.mkdtemp(dir=runs))
            self._run_lock = _lock_of(self._run).open("ab")
            fcntl.flock(self._run_lock, fcntl.LOCK_EX)

    def _remove_old_parts(self) -> None:
        """Remove downloads that nobody went on with."""
        for lock in (self._folder / "parts").glob("*.lock"):
            with suppress(OSError):
                if lock.stat().st_mtime > time.time() - _PART_SECONDS:
                    continue
                if (file := _try_lock(lock)) is not None:
                    for path in (lock.with_suffix(""), lock.with_suffix(".done"), lock):
                        path.unlink(missing_ok=True)
                    file.close()

    # -- files --------------------------------------------------------------------------------

    def _lock(self, path: Path) -> IO[bytes]:
        """A lock among threads and processes, until the file is closed; wait for it.

        A process that dies gives it back.
        """
        while (file := _try_lock(path)) is None:
            if self._thread.wait(_LOCK_SECONDS):
                raise StoppedError
        return file

    def _write_name(self, name: Path, digest: str, status: os.stat_result, address: str) -> None:
        stamp = f"{status.st_mtime_ns} {status.st_size} {current_boot()}"
        self._write(name, f"{digest} {stamp} {address}")

    def _write(self, path: Path, text: str) -> None:
        with tempfile.NamedTemporaryFile("w", dir=self._folder, delete=False) as file:
            try:
                file.write(text)
                file.flush()
                os.replace(file.name, path)
            except BaseException:  # the disk may be full
                os.unlink(file.name)
                raise


def _unused_size(path: Path) -> int:
    """The bytes that an object counts for: none if it is served from, or gone."""
    with suppress(OSError):
        status = path.stat()
        return status.st_size if status.st_nlink == 1 else 0
    return 0


def _try_lock(path: Path) -> IO[bytes] | None:
    """The lock; `None` if another holds it, or has removed its file."""
    file = path.open("ab")
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return file
    file.close()
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _lock_of(run: Path) -> Path:
    return run.with_name(f"{run.name}.lock")
