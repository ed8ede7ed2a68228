"""`MeasuredSizes`: what models were found to take, kept in a file across restarts."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from penstock.core.config import ModelConfig
from penstock.models.sizing.estimate import ModelFacts
from penstock.system.file_state import file_state

logger = logging.getLogger(__name__)

_FORM = 1
"""The form of the file: one of another form is ignored."""

_MOST = 4096
"""Models that are kept: the ones that were measured last."""

_LARGEST_FILE = 4 << 20
"""Bytes of a file that is read."""

_DEEPEST = 10_000
"""Files of a version that its stamp looks at."""


class MeasuredSizes:
    """Bytes by device, by the stamp of a model's files; lives on the event loop.

    `read` and `write` block. Without a `path` nothing is kept.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._found: dict[str, dict[str, int]] = {}
        self._changed = False

    def of(self, stamp: str) -> Mapping[str, int] | None:
        """What was measured of the model of this stamp, if anything was."""
        return self._found.get(stamp)

    def keep(self, stamp: str, sizes: Mapping[str, int]) -> None:
        """Remember what was measured; of too many models the oldest are forgotten."""
        if not stamp:
            return
        self._found.pop(stamp, None)
        self._found[stamp] = dict(sizes)
        while len(self._found) > _MOST:
            del self._found[next(iter(self._found))]
        self._changed = True

    def read(self) -> None:
        """Read the file, if there is one; a wrong one is ignored with a line of the log."""
        if self._path is None:
            return
        try:
            with self._path.open("rb") as file:
                self._found = _parsed(file.read(_LARGEST_FILE + 1))
        except FileNotFoundError:
            return
        except (OSError, ValueError, RecursionError) as error:
            logger.warning("measured sizes in '%s' are ignored: %s", self._path, error)

    def write(self) -> None:
        """Write the file anew if something has changed; a failure is a line of the log."""
        if self._path is None or not self._changed:
            return
        self._changed = False
        text = json.dumps({"form": _FORM, "sizes": dict(self._found)})
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(text)
            temporary.replace(self._path)
        except OSError as error:
            logger.warning("measured sizes are not kept in '%s': %s", self._path, error)
            with suppress(OSError):
                temporary.unlink()


def _parsed(text: bytes) -> dict[str, dict[str, int]]:
    """The sizes of a file; raises `ValueError` for one that we have not written."""
    if len(text) > _LARGEST_FILE:
        raise ValueError(f"it has more than {_LARGEST_FILE} bytes")
    found = json.loads(text)
    if not isinstance(found, dict) or found.get("form") != _FORM:
        raise ValueError("it is not a file of measured sizes")
    sizes = found.get("sizes")
    if not isinstance(sizes, dict) or not all(map(_is_sizes, sizes.values())):
        raise ValueError("its sizes are not bytes by device")
    return sizes


def _is_sizes(value: object) -> bool:
    return isinstance(value, dict) and all(
        type(size) is int and 0 <= size < 1 << 63 for size in value.values()
    )


def stamped_facts(config: ModelConfig, version: int, path: Path) -> ModelFacts:
    """The facts of a version with the stamp of its files; blocks, and raises as their reader.

    `config` is that of the model before its backend has completed it.
    """
    facts = ModelFacts.read(config, version, path)
    return replace(facts, stamp=_stamp(config, version, path))


def _stamp(config: ModelConfig, version: int, path: Path) -> str:
    """A digest of the names and states of a version's files, and of its instances."""
    groups = [(group.kind.name, group.count, group.gpus) for group in config.instance_group]
    seen = sha256(repr((config.name, version, groups)).encode())
    files = [path.parent / "config.pbtxt"]
    for number, file in enumerate(sorted(path.rglob("*"))):
        if number == _DEEPEST:
            break
        if "__pycache__" not in file.parts:
            files.append(file)
    for file in files:
        if (state := file_state(file)) is not None and not file.is_dir():
            _, _, modified, _, size = state
            seen.update(repr((str(file.relative_to(path.parent)), modified, size)).encode())
    return seen.hexdigest()
