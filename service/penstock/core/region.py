"""Memory that a client shares with the server: tensors in it are not sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from penstock.core.buffer import Buffer


@dataclass(frozen=True, slots=True)
class SharedFile:
    """Where another process can map the same memory: an open descriptor, and which part of it."""

    descriptor: int
    offset: int
    byte_size: int


class Region(ABC):
    """Memory of a client's, registered under a name; `number` tells it from all others."""

    def __init__(self, number: int, name: str, byte_size: int) -> None:
        self.number = number
        self.name = name
        self.byte_size = byte_size

    @property
    def exclusive(self) -> bool:
        """Whether what lies in it is for one reader only, who may write to it as well."""
        return False

    @property
    def file(self) -> SharedFile | None:
        """What another process can map; `None` for memory that it cannot."""
        return None

    @abstractmethod
    def slice(self, offset: int, size: int) -> RegionSlice:
        """`size` bytes from `offset`, which must be inside."""


class RegionSlice(ABC):
    """Some bytes of a region: where an input is, or where an output goes.

    The region is in use until `release`, or until nobody holds the slice any more; what was read
    stays readable in any case.
    """

    def __init__(
        self, region: Region, offset: int, size: int, on_release: Callable[[], None] | None = None
    ) -> None:
        self.region = region
        self.offset = offset
        self.size = size
        self._on_release = on_release

    def release(self) -> None:
        """The request is done with it."""
        on_release, self._on_release = self._on_release, None
        if on_release is not None:
            on_release()

    @abstractmethod
    def read(self) -> Buffer:
        """The bytes; a read-only view of the memory itself wherever it is the host's."""

    @abstractmethod
    def write(self, data: Buffer) -> None:
        """Put bytes in, from the beginning of the slice; they must fit."""


class HostSlice(RegionSlice):
    """A slice of memory that this process has mapped, and may write to through `view`.

    `check` raises when the memory is not there any more; it is asked before each write.
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
