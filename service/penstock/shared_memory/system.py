"""Regions of POSIX shared memory."""

from __future__ import annotations

import mmap
import os
import stat
from functools import partial

import numpy as np

from penstock.core.errors import InternalError, InvalidRequestError
from penstock.core.region import HostSlice, Region, RegionSlice, SharedFile
from penstock.shared_memory.uses import RegionUses

_RESERVED = "triton_python_backend_shm_region_"
"""Prefix of keys that clients may not register (contract X-07, SEC-06)."""

_PRIVATE = ("psm_", "sem.", "torch_", "nccl-", "cuda.shm", "sm_segment", "vader_segment")
"""Beginnings of names that Python, the C library, PyTorch, NCCL, CUDA and MPI give to their own.

Among them are the queues of engines' workers, which unpickle what they find there."""


class SystemRegion(Region):
    """`byte_size` bytes of a shared memory object, from `offset` on."""

    def __init__(
        self, number: int, name: str, key: str, descriptor: int, offset: int, byte_size: int
    ) -> None:
        super().__init__(number, name, byte_size)
        self.key = key
        self.offset = offset
        self.uses = RegionUses()
        self._memory: mmap.mmap | None = mmap.mmap(descriptor, byte_size, offset=offset)
        self._descriptor = descriptor

    @property
    def file(self) -> SharedFile | None:
        if self._memory is None:  # the descriptor may be another file's by now
            return None
        return SharedFile(self._descriptor, self.offset, self.byte_size)

    def slice(self, offset: int, size: int) -> RegionSlice:
        """Raises `InvalidRequestError` when the client has truncated the object meanwhile."""
        self._check()
        assert self._memory is not None
        block = np.frombuffer(self._memory, np.uint8, size, offset)
        number = self.uses.number()
        # numpy keeps `block` as the base of every view of it, so its end is the end of them all.
        self.uses.begin(number, block)
        return HostSlice(self, offset, block.data, partial(self.uses.end, number), self._check)

    def close(self) -> None:
        """The mapping is released with its last view."""
        if self._memory is not None:
            self._memory = None
            os.close(self._descriptor)

    def _check(self) -> None:
        """Reading beyond the end of a truncated object would kill the process (SIGBUS)."""
        if self._memory is None:  # a mapping in use is not closed, its descriptor is
            return
        if os.fstat(self._descriptor).st_size < self.offset + self.byte_size:
            raise InvalidRequestError(
                f"shared memory region '{self.name}' is larger than what is left of its memory"
            )


def open_system_region(
    number: int, name: str, key: str, offset: int, byte_size: int, prefix: str = ""
) -> SystemRegion:
    """Map a shared memory object by its key; texts are those of the real server (X-07, X-10).

    Its name begins with `prefix`; without one, it is none that programs give to their own.
    """
    _check_key(name, key, prefix)
    descriptor = _open(key)
    try:
        _check_size(descriptor, name, key, offset + byte_size)
        return _mapped(number, name, key, descriptor, offset, byte_size)
    except BaseException:
        os.close(descriptor)
        raise


def _check_key(name: str, key: str, prefix: str) -> None:
    start = f"cannot register shared memory region '{name}' with key '{key}' as the key"
    own = key.lstrip("/")
    if own.startswith(_RESERVED):
        raise InvalidRequestError(f"{start} contains the reserved prefix '{_RESERVED}'")
    if not own.startswith(prefix):
        raise InvalidRequestError(f"{start} does not begin with '{prefix}' (--client-shm-prefix)")
    if not prefix and own.startswith(_PRIVATE):
        raise InvalidRequestError(
            f"{start} is like those of programs for themselves; --client-shm-prefix can allow it"
        )


def _open(key: str) -> int:
    """As `shm_open`: a file name, whatever slashes it begins with."""
    name = key.lstrip("/")
    try:
        if not name or "/" in name:
            raise ValueError(f"'{key}' is not a name of a shared memory object")
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(f"/dev/shm/{name}", flags)
    except (OSError, ValueError) as error:
        raise InternalError(f"Unable to open shared memory region: '{key}'") from error


def _check_size(descriptor: int, name: str, key: str, end: int) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise InternalError(f"Invalid shared memory region: '{key}'")
    if end > status.st_size:
        raise _refused(name, "invalid args")


def _mapped(
    number: int, name: str, key: str, descriptor: int, offset: int, byte_size: int
) -> SystemRegion:
    # Python takes a size of 0 for the whole object, and looks at the offset before the kernel does.
    if not byte_size or offset % mmap.ALLOCATIONGRANULARITY:
        raise _refused(name, "unable to process address spaceInvalid argument")
    try:
        return SystemRegion(number, name, key, descriptor, offset, byte_size)
    except (OSError, ValueError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise _refused(name, f"unable to process address space{reason}") from error


def _refused(name: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(f"failed to register shared memory region '{name}': {reason}")
