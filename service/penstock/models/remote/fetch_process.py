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
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.models.remote.address import BucketAddress
from penstock.models.remote.bucket import Bucket, BucketError, ObjectChangedError, StoredObject
from penstock.models.remote.credentials import Credentials
from penstock.models.remote.part import SEGMENT, Part, SegmentFile
from penstock.models.remote.segments import AT_ONCE, Lanes, Tell, fetch_segment, segments
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
    """A process that fetches objects of one bucket, until it is closed."""

    def __init__(self, process: subprocess.Popen[bytes], link: socket.socket, tell: Tell) -> None:
        self._process, self._link, self._tell = process, link, tell
        self._jobs: dict[int, Future[str]] = {}
        self._count = 0
        self._lock = threading.Lock()
        self._ended = False
        self._reader = threading.Thread(target=self._read, name="penstock-fetches", daemon=True)
        self._reader.start()

    @classmethod
    def start(cls, bucket: Bucket, tell: Tell) -> FetchProcess | None:
        """A process for a bucket; `None` where none can be started."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        known = {
            "address": bucket.address.text,
            "environment": {**bucket.credentials.environment},
            "home": str(bucket.credentials.home),
        }
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
        with suppress(ConnectionError):  # it has ended already, as the reader sees
            ours.send(json.dumps(known).encode())
        return cls(process, ours, tell)

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
        self._reader.join()
        self._link.close()

    def _read(self) -> None:
        """Take what the process tells, until it ends."""
        with suppress(ConnectionError):
            while message := self._link.recv(_LONGEST):
                self._take(json.loads(message))
        with self._lock:
            self._ended = True
        for job in self._jobs.values():
            _settle(job, FetchEndedError())

    def _take(self, told: dict[str, Any]) -> None:
        if "job" not in told:
            self._tell(*told["count"])
            return
        job = self._jobs.pop(told["job"])
        _settle(job, told.get("digest") or _raised(told["kind"], told["number"], told["text"]))


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


class _Worker:
    """Does what the server asks for, and tells of it."""

    def __init__(self, link: socket.socket, bucket: Bucket) -> None:
        self._link, self._bucket = link, bucket
        self._slots, self._lanes = asyncio.Semaphore(AT_ONCE), Lanes()
        self._counts, self._told = [0, 0, 0], 0.0
        self._lock = threading.Lock()

    async def do(
        self, job: int, stored: StoredObject, done: set[int], files: Sequence[int]
    ) -> None:
        """Fetch an object into the files of its part: itself, its log, and its lock."""
        file, log, lock = files
        part = SegmentFile(file, os.fdopen(log, "a"))
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

    async def _digest(self, stored: StoredObject, done: set[int], part: SegmentFile) -> str:
        digest = hashlib.sha256()
        parts = [*segments(stored.size)]
        fetching = {
            begin: asyncio.ensure_future(self._fetch(stored, part, begin, end))
            for begin, end in parts
            if begin not in done
        }
        try:
            for begin, end in parts:
                if begin in done:
                    self._count(0, end - begin, 0)
                else:
                    await fetching[begin]
                await asyncio.to_thread(part.hash, digest, begin, end)
        finally:
            for each in fetching.values():
                each.cancel()
        return digest.hexdigest()

    async def _fetch(self, stored: StoredObject, part: SegmentFile, begin: int, end: int) -> None:
        slots = self._lanes if end - begin == SEGMENT else self._slots
        await fetch_segment(self._bucket, stored, part, slots, begin, end, self._count)

    def _count(self, *counts: int) -> None:
        with self._lock:
            self._counts = [old + new for old, new in zip(self._counts, counts, strict=True)]
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
    link = socket.socket(fileno=int(sys.argv[1]))
    known = json.loads(link.recv(_LONGEST))
    credentials = Credentials(known["environment"], Path(known["home"]))
    bucket = Bucket(BucketAddress.parse(known["address"]), credentials, StoreThread())
    worker = _Worker(link, bucket)
    while True:
        message, files, _, _ = socket.recv_fds(link, _LONGEST, 3)
        if not message:
            os._exit(0)
        told = json.loads(message)
        stored = StoredObject(*told["stored"])
        bucket.thread.begin(worker.do(told["job"], stored, _unpacked(told["done"]), files))


if __name__ == "__main__":
    main()
