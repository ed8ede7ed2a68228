"""`FetchProcess`: fetches and hashes objects in a process of its own, at a low priority.

A thread that fetches holds the GIL now and then, and where others want the processor it may be put
aside while it does: all requests wait for it. Bytes do not come through this process: the other one
has the files. Messages are texts of JSON, one a packet; a job brings its three files.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from penstock.models.remote.address import BucketAddress
from penstock.models.remote.bucket import Bucket, BucketError, ObjectChangedError, StoredObject
from penstock.models.remote.credentials import Credentials
from penstock.models.remote.part import SEGMENT, Part, SegmentFile
from penstock.models.remote.segments import (
    AT_ONCE,
    Lanes,
    Tell,
    fetch_segments,
    received_on,
    segments,
)
from penstock.models.remote.store_thread import StoreThread
from penstock.system.allocator import tune_allocator

logger = logging.getLogger(__name__)

_NICE = 10
_LONGEST = 1 << 20
_TELL_SECONDS = 0.25
_MODULE = "penstock.models.remote.fetch_process"


class FetchEndedError(Exception):
    """The process has ended; what it fetched is in the files."""


class FetchProcess:
    """A process that fetches objects of the bucket that it is for, until it is closed."""

    def __init__(self, process: subprocess.Popen[bytes], link: socket.socket) -> None:
        self._process, self._link = process, link
        self._jobs: dict[int, Future[str]] = {}
        self._count = 0
        self._lock = threading.Lock()
        self._ended = False
        self._reader: threading.Thread | None = None

    @classmethod
    def start(cls) -> FetchProcess | None:
        """A process that waits for its bucket; `None` where none can be started."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-m", _MODULE, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            logger.debug("objects are fetched in this process: %s", error)
            ours.close()
            return None
        return cls(process, ours)

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def use(self, bucket: Bucket, tell: Tell) -> None:
        """Have it fetch from a bucket, with the credentials that are found now."""
        known = {
            "address": bucket.address.text,
            "environment": {**bucket.credentials.environment},
            "home": str(bucket.credentials.home),
        }
        with suppress(ConnectionError):  # it has ended already, as the reader sees
            self._link.send(json.dumps(known).encode())
        reading = threading.Thread(
            target=self._read, args=(tell,), name="penstock-fetches", daemon=True
        )
        reading.start()
        self._reader = reading

    def begin(self, stored: StoredObject, part: Part) -> Future[str]:
        """Begin with an object; the SHA-256 of the whole.

        Its errors are those of `Bucket.read` and of the disk, and `FetchEndedError`.
        """
        job = Future[str]()
        with self._lock:
            if self._ended:
                job.set_exception(FetchEndedError())
                return job
            self._count += 1
            self._jobs[self._count] = job
            known = {"job": self._count, "stored": stored, "done": _packed(part.done)}
            with suppress(ConnectionError):  # the reader sees it, too
                socket.send_fds(self._link, [json.dumps(known).encode()], part.fds())
        return job

    def close(self) -> None:
        """End the process, with what it does; the files are not written any more."""
        self._process.kill()
        self._process.wait()
        if self._reader is not None:
            self._reader.join()
        self._link.close()

    def _read(self, tell: Tell) -> None:
        """Take what the process tells, until it ends."""
        with suppress(ConnectionError):
            while message := self._link.recv(_LONGEST):
                self._take(json.loads(message), tell)
        with self._lock:
            self._ended = True
        for job in self._jobs.values():
            _settle(job, FetchEndedError())

    def _take(self, told: dict[str, Any], tell: Tell) -> None:
        if "job" not in told:
            tell(*told["count"])
            return
        job = self._jobs.pop(told["job"])
        _settle(job, told.get("digest") or _raised(told["kind"], told["number"], told["text"]))


class FetchProcesses:
    """Starts processes that fetch; once told to, one ahead of its use, whose start takes a while.

    The one that waits ends with this process, however that ends.
    """

    def __init__(self) -> None:
        self._waiting: FetchProcess | None = None
        self._ahead = False
        self._lock = threading.Lock()

    def start(self, bucket: Bucket, tell: Tell) -> FetchProcess | None:
        """A process for a bucket; `None` where none can be started."""
        with self._lock:
            process, self._waiting = self._waiting, None
        if process is not None and not process.is_alive:
            process.close()
            process = None
        process = process or FetchProcess.start()
        if process is not None:
            process.use(bucket, tell)
        return process

    def start_ahead(self) -> None:
        """Have a process wait for its use, from now on."""
        self._ahead = True
        self.refill()

    def refill(self) -> None:
        """Have another process wait in place of one that was used."""
        with self._lock:
            if self._ahead and self._waiting is None:
                self._waiting = FetchProcess.start()

    def close(self) -> None:
        """End the process that waits."""
        with self._lock:
            self._ahead = False
            process, self._waiting = self._waiting, None
        if process is not None:
            process.close()


def _packed(done: Iterable[int]) -> str:
    """Segments that are whole, by their begin, as bits of a number: a packet has 200 KB."""
    return hex(sum(1 << begin // SEGMENT for begin in done))


def _unpacked(done: str) -> set[int]:
    return {at * SEGMENT for at, bit in enumerate(f"{int(done, 16):b}"[::-1]) if bit == "1"}


def _settle(job: Future[str], outcome: str | Exception) -> None:
    with suppress(InvalidStateError):  # nobody waits for it any more
        if isinstance(outcome, Exception):
            job.set_exception(outcome)
        else:
            job.set_result(outcome)


def _raised(kind: str, number: int, text: str) -> Exception:
    if kind == "disk":
        return OSError(number, text)
    return {"changed": ObjectChangedError, "store": BucketError}[kind](text)


# -- the other process -----------------------------------------------------------------------------


class _HashedFile(SegmentFile):
    """A file that is hashed while it comes: what comes in order is not read again."""

    def __init__(self, file: int, log: IO[str]) -> None:
        super().__init__(file, log)
        self._digest = hashlib.sha256()
        self._hashing = threading.Lock()
        self._hashed = 0  # bytes

    def write(self, data: Any, at: int) -> None:
        """Write bytes; hash them, if nothing is missing before them."""
        super().write(data, at)
        if at == self._hashed and self._hashing.acquire(blocking=False):
            if at == self._hashed:
                self._digest.update(data)
                self._hashed += len(data)
            self._hashing.release()

    def hash_to(self, end: int) -> None:
        """Hash what is not hashed of the bytes before `end`, all of which are in the file."""
        with self._hashing:
            if self._hashed < end:
                self.hash(self._digest, self._hashed, end)
                self._hashed = end

    def hexdigest(self) -> str:
        """The SHA-256 of all that was hashed."""
        return self._digest.hexdigest()


class _Worker:
    """Does what the server asks for, and tells of it."""

    def __init__(self, link: socket.socket, bucket: Bucket) -> None:
        self._link, self._bucket = link, bucket
        self._slots, self._lanes = asyncio.Semaphore(AT_ONCE), Lanes()
        self._receive = received_on(ThreadPoolExecutor(2 * AT_ONCE))
        self._counts, self._told = [0, 0, 0], 0.0
        self._lock = threading.Lock()

    async def do(
        self, job: int, stored: StoredObject, done: set[int], files: Sequence[int]
    ) -> None:
        """Fetch an object into the files of its part: itself, its log, and its lock."""
        file, log, lock = files
        part = _HashedFile(file, os.fdopen(log, "a"))
        told: dict[str, Any] = {"job": job}
        try:
            told["digest"] = await self._digest(stored, done, part)
        except ObjectChangedError as error:
            told |= {"kind": "changed", "number": 0, "text": str(error)}
        except BucketError as error:
            told |= {"kind": "store", "number": 0, "text": str(error)}
        except OSError as error:
            number = error.errno or errno.EIO
            told |= {"kind": "disk", "number": number, "text": error.strerror or str(error)}
        part.close()
        os.close(lock)
        self._flush()
        self._link.send(json.dumps(told).encode())

    async def _digest(self, stored: StoredObject, done: set[int], part: _HashedFile) -> str:
        parts = [*segments(stored.size)]
        left = {begin: end for begin, end in parts if begin not in done}
        fetching = {
            begin: asyncio.ensure_future(self._fetch(stored, part, begin, left)) for begin in left
        }
        try:
            for begin, end in parts:
                if begin in done:
                    self._count(0, end - begin, 0)
                else:
                    await fetching[begin]
                await asyncio.to_thread(part.hash_to, end)
        finally:
            for each in fetching.values():
                each.cancel()
        return part.hexdigest()

    async def _fetch(
        self, stored: StoredObject, part: SegmentFile, begin: int, left: dict[int, int]
    ) -> None:
        """Fetch a segment, with those behind it that are `left`, unless it came with an earlier."""

        async def some(most: int) -> int:
            end = begin
            for _ in range(most):
                end = left.pop(end, end)
            count, receive = self._count, self._receive
            await fetch_segments(self._bucket, stored, part, begin, end, count, receive)
            return (end - begin) // SEGMENT

        if left.get(begin, begin) - begin == SEGMENT:
            await self._lanes.fetch(some)
        elif begin in left:
            async with self._slots:
                await some(1)

    def _count(self, size: int, here: int, retries: int) -> None:
        with self._lock:
            counts = self._counts
            counts[0] += size
            counts[1] += here
            counts[2] += retries
        if time.monotonic() - self._told > _TELL_SECONDS:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            counts, self._counts = self._counts, [0, 0, 0]
            self._told = time.monotonic()
        if any(counts):
            self._link.send(json.dumps({"count": counts}).encode())


def main() -> None:
    """Fetch what the server asks for, until it closes the link, or is gone."""
    os.nice(_NICE)
    tune_allocator()  # each chunk in new pages would cost a sixth of the processor time
    with suppress(ImportError):  # said where it is needed
        import obstore.store  # noqa: F401  # before there is anything to fetch
    link = socket.socket(fileno=int(sys.argv[1]))
    message = link.recv(_LONGEST)
    if not message:
        return
    known = json.loads(message)
    credentials = Credentials(known["environment"], Path(known["home"]))
    bucket = Bucket(BucketAddress.parse(known["address"]), credentials, StoreThread())
    worker = _Worker(link, bucket)
    while True:
        message, files, _, _ = socket.recv_fds(link, _LONGEST, 3)
        if not message:
            os._exit(0)
        told = json.loads(message)
        stored = StoredObject(*told["stored"])
        job = worker.do(told["job"], stored, _unpacked(told["done"]), files)
        bucket.thread.begin(job).add_done_callback(_end_if_failed)


def _end_if_failed(job: Future[None]) -> None:
    """End where nothing could be told, as where no thread may be started: the server goes on."""
    if job.exception() is not None:
        os._exit(1)


if __name__ == "__main__":
    main()
