"""Models that attack the server that runs them: each writes other bytes to the sockets it has."""

from __future__ import annotations

from pathlib import Path

_CONFIG = """
backend: "python"
input [{ name: "IN" data_type: TYPE_INT32 dims: [ 1 ] }]
output [{ name: "OUT" data_type: TYPE_INT32 dims: [ 1 ] }]
"""

_CODE = """
import os
import stat
import struct

BYTES = {bytes}


class TritonPythonModel:
    def execute(self, requests):
        for name in os.listdir("/proc/self/fd"):
            try:
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    os.write(int(name), BYTES)
            except OSError:
                pass
        return [None for _ in requests]
"""

ROGUES = {
    "empty_frame": 'struct.pack("<IIB", 0, 5, 31) + b"[" + bytes(4)',
    "huge_frame": 'struct.pack("<IIB", 0xFFFFFFFF, 5, 31) + b"[" + bytes(4)',
    "head_beyond_frame": 'struct.pack("<IIB", 20, 0xFFFFFFFF, 31) + bytes(11)',
    "unknown_kind": 'struct.pack("<IIB", 14, 5, 255) + b"[" + bytes(4)',
    "deep_header": 'struct.pack("<IIB", 50009, 50000, 31) + (b"[" + struct.pack("<I", 1)) * 10000',
    "noise": "bytes(range(256)) * 40",
}
"""What each model writes, as an expression."""


def write_rogues(folder: Path) -> None:
    """The repository of these models."""
    for name, expression in ROGUES.items():
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(_CONFIG)
        (folder / name / "1" / "model.py").write_text(_CODE.format(bytes=expression))
