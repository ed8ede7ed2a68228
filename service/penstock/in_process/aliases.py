"""The names of Triton's packages for this API, where programs import those."""

from __future__ import annotations

import sys
from importlib import import_module

ALIASES = {"tritonserver": "penstock.in_process", "tritonfrontend": "penstock.in_process.frontend"}


def install() -> None:
    """Make `import tritonserver` and `import tritonfrontend` mean this API, in this process.

    Raises `ImportError` where a program has imported Triton's own already.
    """
    for name, ours in ALIASES.items():
        module = import_module(ours)
        if sys.modules.setdefault(name, module) is not module:
            raise ImportError(f"'{name}' is imported already, and is not Penstock's")
