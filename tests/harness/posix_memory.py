"""Shared memory as a client makes it."""

from __future__ import annotations

import mmap
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class PosixMemory:
    """A POSIX shared memory object: its key for the server, and its bytes."""

    key: str
    data: memoryview

    @property
    def path(self) -> Path:
        return Path("/dev/shm") / self.key.lstrip("/")


@contextmanager
def posix_memory(size: int = 4096) -> Iterator[PosixMemory]:
    """A new object of `size` zero bytes, which is gone afterwards."""
    key = f"/penstock-test-{uuid.uuid4().hex}"
    path = Path("/dev/shm") / key.lstrip("/")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    os.ftruncate(descriptor, size)
    memory = mmap.mmap(descriptor, size)
    os.close(descriptor)
    try:
        yield PosixMemory(key, memoryview(memory))
    finally:
        path.unlink(missing_ok=True)
