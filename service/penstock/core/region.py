"""Shared-memory regions: memory that several processes map, so that tensors are not sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from penstock.core.buffer import Buffer


@dataclass(frozen=True, slots=True)
class SharedFile:
    """A mappable file behind a region: an open descriptor, and a range of bytes."""

    descriptor: int
    offset: int
    byte_size: int


class Region(ABC):
    """Memory that a client has registered under a name, or the server's own for tensors.

    `number` is its unique id: above zero for clients' regions, below zero, without a name, for
    arenas of model processes and the memory of request messages.
    """

    def __init__(self, number: int, name: str, byte_size: int) -> None:
        self.number = number
        self.name = name
        self.byte_size = byte_size

    @property
    def exclusive(self) -> bool:
        """Whether each tensor in it has one reader only, which may overwrite it."""
        return False

    @property
    def readers(self) -> frozenset[str] | None:
        """The models whose processes may map it; `None` for all."""
        return None

    @property
    def file(self) -> SharedFile | None:
        """The file that another process can map; `None` if there is none."""
        return None

    @abstractmethod
    def slice(self, offset: int, size: int) -> RegionSlice:
        """The slice of `size` bytes at `offset`, a range that the caller has checked."""


class RegionSlice(ABC):
    """A range of bytes of a region: the place of an input or output tensor.

    The region is in use until `release`, or until the slice is garbage-collected; a buffer that was
    read stays valid in any case.
    """

    def __init__(
        self, region: Region, offset: int, size: int, on_release: Callable[[], None] | None = None
    ) -> None:
        self.region = region
        self.offset = offset
        self.size = size
        self._on_release = on_release

    def release(self) -> None:
        """End the use of the region by this slice; may be called again."""
        on_release, self._on_release = self._on_release, None
        if on_release is not None:
            on_release()

    @abstractmethod
    def read(self) -> Buffer:
        """The bytes; a read-only view, not a copy, where the memory is the host's."""

    @abstractmethod
    def write(self, data: Buffer) -> None:
        """Copy `data` to the beginning of the slice; it must fit."""


class HostSlice(RegionSlice):
    """A slice of memory that this process has mapped, written through `view`.

    `check` is called before each write, and raises if the memory is gone.
    """

    def __init__(
        self,
        region: Region,
        offset: int,
        view: memoryview,
        on_release: Callable[[], None] | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(region, offset, len(view), on_release)
        self._view = view
        self._check = check

    def read(self) -> Buffer:
        return self._view.toreadonly()

    def write(self, data: Buffer) -> None:
        source = memoryview(data)
        if source.nbytes:
            if self._check is not None:
                self._check()
            self._view[: source.nbytes] = source.cast("B")
