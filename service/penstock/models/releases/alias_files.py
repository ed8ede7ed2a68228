"""`AliasFiles`: what `aliases.toml` in folders of models declares, and when that has changed."""

from __future__ import annotations

import asyncio
import logging
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.core.errors import InferenceError
from penstock.models.releases.alias import Alias
from penstock.models.releases.definition import parse_alias
from penstock.system.file_state import FileState, check_file, file_state

logger = logging.getLogger(__name__)

ALIASES_FILE = "aliases.toml"
"""The file of a repository that declares aliases, each a table of its own."""

_LOOK_SECONDS = 1.0
_RARELY_SECONDS = 5.0
"""The same where no folder has had such a file so far."""


class AliasFiles:
    """Looks at all files in one hop to a thread, and reads those that have changed."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._files = [folder / ALIASES_FILE for folder in folders]
        self._seen: dict[Path, FileState] = {}
        self._again: set[Path] = set()
        self._next = 0.0
        self._any = False

    def due(self, now: float) -> bool:
        """Whether it is time to look, on a clock that only goes forwards."""
        if not self._files or now < self._next:
            return False
        self._next = now + (_LOOK_SECONDS if self._any else _RARELY_SECONDS)
        return True

    def read_again(self, file: Path) -> None:
        """Take a file for changed, as what it declares could not be taken."""
        self._again.add(file)

    async def changed(self) -> Sequence[tuple[Path, Mapping[str, Alias]]]:
        """What files declare that have changed; of one that is gone nothing.

        One that cannot be read, or has a wrong definition, is named in the log and left out.
        """
        states = await asyncio.to_thread(_states, self._files)
        found = []
        for file, state in zip(self._files, states, strict=True):
            if state == self._seen.get(file) and file not in self._again:
                continue
            self._seen[file] = state
            self._again.discard(file)
            self._any = self._any or state is not None
            try:
                declared = {} if state is None else await asyncio.to_thread(_read, file)
                aliases = [parse_alias(name, fields) for name, fields in declared.items()]
            except (OSError, ValueError, RecursionError, InferenceError) as error:
                logger.error("%s is not taken: %s", file, error)
                continue
            found.append((file, {alias.name: alias for alias in aliases}))
        return found


def _states(files: Sequence[Path]) -> list[FileState]:
    return [file_state(file) for file in files]


def _read(file: Path) -> dict[str, Any]:
    """The tables of a file; raises `ValueError` for what is no TOML."""
    check_file(file)
    return tomllib.loads(file.read_text("utf-8"))
