"""Platform check: whether this CPU supports OpenVINO's paged attention."""

from __future__ import annotations

import platform
from pathlib import Path

_X86_64 = ("x86_64", "amd64")
_ARM64 = ("aarch64", "arm64")


def unsupported_reason() -> str | None:
    """Why the engine cannot run on this CPU; `None` when it can."""
    return check(platform.system(), platform.machine().lower(), _cpu_flags())


def check(system: str, machine: str, flags: frozenset[str]) -> str | None:
    """The same for a machine given by system, architecture and CPU flags."""
    if machine in _X86_64:
        return None
    if machine not in _ARM64:
        return f"OpenVINO's paged attention does not run on {machine or 'this architecture'}"
    if system == "Linux" and "sve" in flags:
        return None
    return (
        "OpenVINO's paged attention needs an x86-64 CPU or an ARM CPU with SVE "
        f"(such as Neoverse V1, V2 or N2), and this is {system} on {machine} without SVE"
    )


def _cpu_flags() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    named = (line.partition(":") for line in lines)
    return frozenset(
        flag
        for name, _, value in named
        if name.strip().lower() in ("flags", "features")
        for flag in value.split()
    )
