"""How much memory the server shares with its models."""

from __future__ import annotations

from pathlib import Path

from harness.serving import Served


def shared_memory(server: Served) -> int:
    """Bytes of shared memory that the server has touched."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("RssShmem"))
    return int(line.split()[1]) << 10
