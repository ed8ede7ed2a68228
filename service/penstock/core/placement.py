"""`Placement`: CPU affinity, NUMA memory policy and memory limit of an instance (I-08)."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import resource
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.core.errors import ConfigError, ModelLoadError

_SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
"""System call numbers; the C library has no wrapper for it."""
_BIND = 2
_MOST_NODES = 1024


@dataclass(frozen=True, slots=True)
class Placement:
    """First and last core, and a NUMA node; `None` leaves the choice to the system.

    `memory` limits a process: allocations fail beyond so many bytes. All private writable memory
    counts, touched or not; memory shared with the server does not.
    """

    cores: tuple[int, int] | None = None
    numa_node: int | None = None
    memory: int | None = None

    @classmethod
    def from_settings(cls, policy: str, settings: Mapping[str, str]) -> Placement:
        """Parse the `--host-policy` settings of one policy; raises `ConfigError`."""
        cores, node = settings.get("cpu-cores"), settings.get("numa-node")
        return cls(
            None if cores is None else parse_cores(f"host policy '{policy}': cpu-cores", cores),
            None if node is None else _node(policy, node),
        )

    def apply(self) -> None:
        """Bind the calling thread, and those that it starts later; raises `ModelLoadError`."""
        if self.memory is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (self.memory, self.memory))
        if self.numa_node is not None:
            _bind_memory(self.numa_node)
        if self.cores is not None:
            first, last = self.cores
            try:
                os.sched_setaffinity(0, range(first, last + 1))
            except OSError as error:
                raise ModelLoadError(
                    f"Unable to set NUMA thread affinity: cores {first}-{last}: {error.strerror}"
                ) from error


def parse_cores(name: str, text: str) -> tuple[int, int]:
    """First and last core; raises `ConfigError` that names what the text is the value of."""
    found = re.fullmatch(r"(\d{1,6})-(\d{1,6})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise ConfigError(f"{name} must be '<first>-<last>', got '{text}'")
    return int(found[1]), int(found[2])


def _node(policy: str, text: str) -> int:
    if not text.isdecimal() or int(text) >= _MOST_NODES:
        raise ConfigError(
            f"host policy '{policy}': numa-node must be a node's number, got '{text}'"
        )
    return int(text)


def _bind_memory(node: int) -> None:
    """Allocate the calling thread's memory on one node only."""
    number = _SET_MEMPOLICY.get(platform.machine())
    if number is None:
        raise ModelLoadError(f"Unable to set NUMA memory policy on {platform.machine()}")
    width = 8 * ctypes.sizeof(ctypes.c_ulong)
    mask = (ctypes.c_ulong * (_MOST_NODES // width))()
    mask[node // width] = 1 << node % width
    library = ctypes.CDLL(None, use_errno=True)
    if library.syscall(number, _BIND, mask, ctypes.c_ulong(_MOST_NODES + 1)):
        reason = os.strerror(ctypes.get_errno())
        raise ModelLoadError(f"Unable to set NUMA memory policy: node {node}: {reason}")
