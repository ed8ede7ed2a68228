"""`Regions`: the regions that clients have registered, by name (contract X-07 to X-11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from penstock.core.errors import (
    AlreadyExistsError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedError,
    shortened,
)
from penstock.core.region import Region, RegionSlice
from penstock.core.request import InferenceRequest
from penstock.shared_memory.cuda import CudaRegion, open_cuda_region
from penstock.shared_memory.system import SystemRegion, open_system_region

_DISABLED = (
    "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to enable."
)

Kind = type[SystemRegion] | type[CudaRegion]
AnyRegion = TypeVar("AnyRegion", SystemRegion, CudaRegion)

_NAMES: dict[type[Region], tuple[str, str]] = {
    SystemRegion: ("system", "CUDA"),
    CudaRegion: ("CUDA", "system"),
}


@dataclass(slots=True)
class _Entry:
    region: SystemRegion | CudaRegion
    unregistered: bool = False


class Regions:
    """Registers, finds and unregisters; one namespace for all kinds of memory.

    Unless clients are `allowed` to share memory, nothing can be registered (X-08). Names of POSIX
    shared memory begin with `prefix`.
    """

    def __init__(self, *, allowed: bool = False, prefix: str = "") -> None:
        self._allowed = allowed
        self._prefix = prefix
        self.entries: dict[str, _Entry] = {}
        self._numbers = count(1)

    def register_system(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Map POSIX shared memory; raises what the client did wrong."""
        self._check_new(name)
        if any(isinstance(r, SystemRegion) and r.key == key for r in self._regions()):
            raise InternalError(f"Invalid shared memory region: '{key}'")  # as the real server
        number = next(self._numbers)
        self._add(open_system_region(number, name, key, offset, byte_size, self._prefix))

    def register_cuda(self, name: str, handle: bytes, device: int, byte_size: int) -> None:
        """Open memory of a GPU by its IPC handle; raises what the client did wrong."""
        self._check_new(name)
        self._add(open_cuda_region(next(self._numbers), name, handle, device, byte_size))

    def unregister(self, kind: Kind, name: str = "") -> None:
        """Unregister one region of a kind, or all of them; regions in use once they are idle."""
        self.check_allowed()
        for entry in list(self.entries.values()):
            if isinstance(entry.region, kind) and (not name or entry.region.name == name):
                entry.unregistered = True
                self._remove_idle(entry)

    def status(self, kind: type[AnyRegion], name: str = "") -> list[AnyRegion]:
        """One region of a kind, or all of them by name; raises when the one is not there."""
        if not name:
            found = sorted(self._regions(), key=lambda region: region.name)
            return [region for region in found if isinstance(region, kind)]
        own, other = _NAMES[kind]
        entry = self.entries.get(name)
        if entry is None:
            own = own.lower()
            raise NotFoundError(f"Unable to find {own} shared memory region: '{name}'")
        if not isinstance(entry.region, kind):
            raise NotFoundError(
                f"The region named '{name}' is registered as {other} shared memory,"
                f" not {own} shared memory"
            )
        return [entry.region]

    def slice(self, name: str, offset: int, size: int) -> RegionSlice:
        """Part of a region, for a tensor; raises when there is no such part (X-09, X-10)."""
        entry = self.entries.get(name)
        check_slice(name, None if entry is None else entry.region.byte_size, offset, size)
        assert entry is not None
        return entry.region.slice(offset, size)

    def release(self, request: InferenceRequest) -> None:
        """Release the regions of a request that is answered; nothing to do without `entries`."""
        if not self.entries:
            return
        for tensor in request.inputs.values():
            if tensor.shared is not None:
                tensor.shared.release()
        for place in request.output_places.values():
            place.release()

    def close(self) -> None:
        """Release all regions: the server ends."""
        entries, self.entries = self.entries, {}
        for entry in entries.values():
            _close(entry.region)

    def _check_new(self, name: str) -> None:
        self.check_allowed()
        if name in self.entries:
            raise AlreadyExistsError(f"shared memory region '{name}' already in manager")

    def check_allowed(self) -> None:
        """Refuse what clients may not do here."""
        if not self._allowed:
            raise UnsupportedError(_DISABLED)

    def _add(self, region: SystemRegion | CudaRegion) -> None:
        entry = self.entries[region.name] = _Entry(region)
        region.uses.on_idle = lambda: self._remove_idle(entry)

    def _remove_idle(self, entry: _Entry) -> None:
        """Close an unregistered region once it is idle; called from any thread (G-16)."""
        name = entry.region.name
        if not entry.unregistered or entry.region.uses or self.entries.get(name) is not entry:
            return
        del self.entries[name]
        _close(entry.region)

    def _regions(self) -> Iterator[SystemRegion | CudaRegion]:
        return (entry.region for entry in self.entries.values())


def _close(region: SystemRegion | CudaRegion) -> None:
    """Close a region; a lender is notified when it is garbage-collected."""
    region.uses.on_idle = None  # which refers to it
    region.close()


NO_REGIONS = Regions()
"""An empty registry in which nothing can be registered."""


def check_slice(name: str, byte_size: int | None, offset: int, size: int) -> None:
    """Raise where a region of so many bytes has no such part, or where there is no region."""
    if byte_size is None:
        raise NotFoundError(f"Unable to find shared memory region: '{shortened(name)}'")
    if not 0 <= offset < byte_size:
        raise InvalidRequestError(f"Invalid offset for shared memory region: '{name}'")
    # An empty slice is refused at offset 0 only, as by the real server.
    if not 0 <= size <= byte_size - offset or offset == size == 0:
        text = f"Invalid offset + byte size for shared memory region: '{name}'"
        raise InvalidRequestError(text)
