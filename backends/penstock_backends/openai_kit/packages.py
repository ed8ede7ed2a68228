"""`kit_imports`: where modules of the kit are imported that need packages besides the server's."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from penstock.backend import BackendNotInstalledError

_importing = Lock()


@contextmanager
def kit_imports() -> Iterator[None]:
    """Imports of one thread at a time; raises `BackendNotInstalledError` where one fails.

    Models load on several threads, and of two that import `openai` in different orders one finds it
    half imported.
    """
    with _importing:
        try:
            yield
        except ImportError as error:
            raise BackendNotInstalledError(
                "they need packages that are not installed: "
                f"pip install 'penstock[openai]', for {sys.executable} ({error})"
            ) from error
