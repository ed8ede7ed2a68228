"""Seals of anonymous memory that is shared: nobody who has it can make it shorter."""

from __future__ import annotations

import fcntl


def seal_size(descriptor: int) -> None:
    """Fix the size for ever: where it shrank, whoever reads behind its end would be killed."""
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
