"""`Downloads`: brings objects of buckets into the cache, in segments, side by side."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TextIO

from penstock.models.remote.bucket import Bucket, ObjectChangedError, StoredObject
from penstock.models.remote.fetch_process import FetchEndedError, FetchProcess, FetchProcesses
from penstock.models.remote.object_cache import Layout, ObjectCache
from penstock.models.remote.part import Part
from penstock.models.remote.segments import AT_ONCE, Tell, fetch_segments, segments

logger = logging.getLogger(__name__)

_OBJECTS = 16
"""Objects that are under way; each holds a lock and two files."""
_ELSEWHERE = 32 << 20
"""Bytes from which on another process fetches: it would hold this one's GIL for too long."""
_TELL_SECONDS = 5.0
_BAR = 30
"""Columns of a bar."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk without room, for this user or for anybody."""


@dataclass(slots=True)
class Traffic:
    """Counts of what was asked of the repositories that lie elsewhere, since the start."""

    fetched_bytes: int = 0
    fetched_objects: int = 0
    cached_objects: int = 0
    retries: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count(self, *, size: int = 0, fetched: int = 0, cached: int = 0, retries: int = 0) -> None:
        """Add to the counts, on any thread."""
        with self._lock:
            self.fetched_bytes += size
            self.fetched_objects += fetched
            self.cached_objects += cached
            self.retries += retries


class Downloads:
    """Fetches what is not in the cache; every byte is hashed before anything is made of it."""

    def __init__(self, cache: ObjectCache, traffic: Traffic, processes: FetchProcesses) -> None:
        self.cache, self.traffic, self._processes = cache, traffic, processes
        self.slots = asyncio.Semaphore(AT_ONCE)

    def fetch(
        self, bucket: Bucket, objects: Sequence[StoredObject], what: str, layout: Layout
    ) -> None:
        """Bring objects into a layout by their paths; `what` names them in the log.

        Raises `BucketError`, `ObjectChangedError` for an object that was replaced meanwhile,
        `StoppedError`, `CacheError`, `FileNotFoundError` for an object that another process
        removed, and `ModelLoadError` for what never fits.
        """
        keys = {each: _key(bucket, each) for each in objects}
        files = {each: path for each, key in keys.items() if (path := self.cache.find(key))}
        missing = {each: key for each, key in keys.items() if each not in files}
        needed = sum(each.size for each in missing)
        if missing:
            self.cache.check_limit(needed, files.values())
        for each, path in files.items():  # from now on nobody makes room of it
            layout.link(each.path, path)
        self.traffic.count(cached=len(files))
        if missing:
            self.cache.make_room(needed)
            with _Progress(what, needed) as progress:
                self._fetch(bucket, missing, progress, layout)
            tidy = partial(self._tidy, list(missing.values()))
            threading.Thread(target=tidy, name="penstock-sync", daemon=True).start()

    def _tidy(self, fetched: Sequence[str]) -> None:
        """Work behind a download, for which no load waits: files are synced, a process started."""
        self.cache.sync(fetched)
        self._processes.refill()

    def _fetch(
        self,
        bucket: Bucket,
        missing: Mapping[StoredObject, str],
        progress: _Progress,
        layout: Layout,
    ) -> None:
        """Each object in turn, while those behind it are under way."""
        ahead: deque[_Transfer] = deque()
        waiting = deque(missing.items())
        tell = partial(self._tell, progress)
        large = sum(each.size for each in missing) >= _ELSEWHERE
        process = self._processes.start(bucket, tell) if large else None
        try:
            while waiting or ahead:
                if waiting and len(ahead) < _OBJECTS:
                    stored, key = waiting.popleft()
                    ahead.append(self._begin(bucket, stored, key, tell, process))
                else:
                    ahead[0].finish(layout)
                    ahead.popleft().close()
        except OSError as error:
            if error.errno in _FULL:  # leave the room to others
                for transfer in ahead:
                    transfer.give_up()
            raise
        finally:
            if process is not None:
                process.close()
            for transfer in ahead:
                transfer.close()

    def _tell(self, progress: _Progress, size: int, here: int, retries: int) -> None:
        """Count bytes that came and those that were here already, on any thread."""
        self.traffic.count(size=size, retries=retries)
        progress.add(size + here)

    def _begin(
        self,
        bucket: Bucket,
        stored: StoredObject,
        key: str,
        tell: Tell,
        process: FetchProcess | None,
    ) -> _Transfer:
        part = self.cache.part(key, stored.size)
        transfer = _Transfer(self, bucket, stored, key, part, tell, process)
        try:
            transfer.begin()
        except BaseException:
            transfer.close()
            raise
        return transfer


class _Transfer:
    """One object on its way into the cache."""

    def __init__(
        self,
        downloads: Downloads,
        bucket: Bucket,
        stored: StoredObject,
        key: str,
        part: Part,
        tell: Tell,
        process: FetchProcess | None,
    ) -> None:
        self.stored = stored
        self._cache, self._traffic = downloads.cache, downloads.traffic
        self._slots = downloads.slots
        self._bucket, self._key, self._part, self._tell = bucket, key, part, tell
        self._process = process
        self._segments: list[tuple[int, int, Future[None] | None]] = []
        self._digest: Future[str] | None = None
        self._found: Path | None = None

    def begin(self) -> None:
        """Begin with all segments that are not here."""
        self._found = self._cache.find(self._key)  # another process may have been quicker
        if self._found:
            return
        if self._process is not None:
            self._digest = self._process.begin(self.stored, self._part)
        else:
            self._begin_here()

    def _begin_here(self) -> None:
        for begin, end in segments(self.stored.size):
            here = begin in self._part.done
            self._segments.append((begin, end, None if here else self._begun(begin, end)))

    def _begun(self, begin: int, end: int) -> Future[None]:
        return self._bucket.thread.begin(self._fetch(begin, end))

    async def _fetch(self, begin: int, end: int) -> None:
        async with self._slots:
            await fetch_segments(self._bucket, self.stored, self._part, begin, end, self._tell)

    def finish(self, layout: Layout) -> None:
        """Link the object, and keep it in the cache, once it is whole and hashed."""
        if self._found is not None:
            layout.link(self.stored.path, self._found)
            self._part.remove()
            self._tell(0, self.stored.size, 0)
            self._traffic.count(cached=1)
            return
        try:
            digits = self._hashed()
        except ObjectChangedError:
            self._part.remove()
            raise
        self._traffic.count(fetched=1)
        address = self._bucket.address.of(self.stored.key)
        self._cache.store(self._key, self._part, digits, address, layout, self.stored.path)

    def _hashed(self) -> str:
        """The SHA-256 of the object, once it is whole."""
        if self._digest is not None:
            try:
                return self._bucket.thread.result(self._digest)
            except FetchEndedError:
                logger.warning("the process that fetches objects has ended; this one goes on")
                self._part.look()
                self._begin_here()
        digest = hashlib.sha256()
        for begin, end, future in self._segments:
            if future is None:
                self._tell(0, end - begin, 0)
            else:
                self._bucket.thread.result(future)
            self._part.hash(digest, begin, end)
        return digest.hexdigest()

    def give_up(self) -> None:
        """Throw away what was fetched."""
        self._part.remove()

    def close(self) -> None:
        """Stop what is under way, and let others have the object."""
        for _, _, future in self._segments:
            if future is not None:
                future.cancel()
        self._part.close()


class _Progress:
    """Tells of a download that takes long: a bar on a terminal, lines elsewhere."""

    def __init__(self, what: str, size: int) -> None:
        self._what, self._size = what, size
        self._bar = sys.stderr if sys.stderr.isatty() else None
        self._done, self._began, self._told = 0, time.monotonic(), time.monotonic()
        self._lock = threading.Lock()

    def __enter__(self) -> _Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None and self._told > self._began:
            self._bar.write("\r\x1b[K")
        if kind is None:
            seconds = time.monotonic() - self._began
            logger.info(
                "fetched %s: %.1f MiB in %.1f s", self._what, self._size / (1 << 20), seconds
            )

    def add(self, size: int) -> None:
        """Count bytes, on any thread."""
        with self._lock:
            self._done += size
            now = time.monotonic()
            if now - self._told < (0.2 if self._bar is not None else _TELL_SECONDS):
                return
            self._told = now
            self._tell(self._done / max(now - self._began, 1e-3))

    def _tell(self, rate: float) -> None:
        text = (
            f"{self._what}: {self._done >> 20} of {self._size >> 20} MiB, {rate / (1 << 20):.0f}"
            " MiB/s"
        )
        if self._bar is None:
            logger.info("fetching %s", text)
            return
        filled = _BAR * self._done // max(self._size, 1)
        room = _columns(self._bar) - _BAR - len("[] ") - 1  # a wrapped line stays
        if len(text) > room:  # its end names the model, and how far it is
            text = f"...{text[3 - room :]}" if room > 3 else ""
        self._bar.write(f"\r\x1b[K[{'=' * filled:<{_BAR}}] {text}")
        self._bar.flush()


def _columns(terminal: TextIO) -> int:
    """The width of a terminal; 80 where it does not say it."""
    try:
        return os.get_terminal_size(terminal.fileno()).columns or 80
    except OSError:
        return 80


def _key(bucket: Bucket, stored: StoredObject) -> str:
    """The name of an object, as it is now, in the cache."""
    text = "\n".join((bucket.address.store, stored.key, stored.e_tag, str(stored.size)))
    return hashlib.sha256(text.encode()).hexdigest()
