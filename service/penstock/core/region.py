"""Memory that a client shares with the server (contract area G): tensors in it are not sent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from penstock.core.tensor import Buffer


@dataclass(frozen=True, slots=True)
class SharedFile:
    """Where another process can map the same memory: an open descriptor, and which part of it."""

    descriptor: int
    offset: int
    byte_size: int


class Region(ABC):
    """Memory of a client's, registered under a name; `number` tells it from all others.

    It stays registered while slices of it are in use, also after the client has unregistered it.
    """

    def __init__(self, number: int, name: str, byte_size: int) -> None:
        self.number = number
        self.name = name
        self.byte_size = byte_size

    @property
    def file(self) -> SharedFile | None:
        """What another process can map; `None` for memory that it cannot."""
        return None

    @property
    @abstractmethod
    def in_use(self) -> bool:
        """Whether anybody holds a slice, or what was read from one."""

    @abstractmethod
    def slice(self, offset: int, size: int) -> RegionSlice:
        """`size` bytes from `offset`, which must be inside."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the memory; nobody uses it."""


class RegionSlice(ABC):
    """Some bytes of a region: where an input is, or where an output goes."""

    def __init__(self, region: Region, offset: int, size: int) -> None:
        self.region = region
        self.offset = offset
        self.size = size

    @abstractmethod
    def read(self) -> Buffer:
        """The bytes; a read-only view of the memory itself wherever it is the host's."""

    @abstractmethod
    def write(self, data: Buffer) -> None:
        """Put bytes in, from the beginning of the slice; they must fit."""
