"""What a model version was read from: its files, their fingerprints, and its label files."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.core.config import ModelConfig
from penstock.core.errors import InternalError
from penstock.models.repository.repository import CONFIG_FILE, ModelFiles


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """`config` has all that the files' own leaves out; `labels` are by output."""

    files: ModelFiles
    number: int
    config: ModelConfig
    labels: Mapping[str, Sequence[bytes]]
    origin: Origin

    @classmethod
    def read(cls, files: ModelFiles, number: int, config: ModelConfig) -> VersionFiles:
        """The version with what else its files hold. Reads the disk."""
        labels = read_labels(config, files.path)
        return cls(files, number, config, labels, origin_of(files, number))

    @property
    def path(self) -> Path:
        """The folder of this version."""
        return self.files.versions[self.number]


@dataclass(frozen=True, slots=True)
class Origin:
    """What a version was loaded from: its configuration as polled, and the state of its files."""

    config: ModelConfig
    files: Fingerprint

    def differs_in_instances_only(self, other: Origin) -> bool:
        """Whether changing the instances is all there is to do, and is something to do."""
        groups = self.config.instance_group
        return (
            groups != other.config.instance_group
            and replace(other.config, instance_group=groups) == self.config
            and self.files == other.files
        )


def origin_of(files: ModelFiles, version: int) -> Origin:
    """Name, size and time of every file of a version and of those that all versions share.

    Reads the disk.
    """
    ours = files.versions[version]
    others = {str(path) for path in files.versions.values() if path != ours}
    skipped = others | {str(files.path / "configs"), str(files.path / CONFIG_FILE)}
    return Origin(files.config, fingerprint(files.path, skipped) | fingerprint(ours))


Fingerprint = frozenset[tuple[str, int, int]]
"""Every file and folder below one: its path, when it was changed, and its size."""

_MADE_BY_LOADING = "__pycache__"


def fingerprint(folder: Path, skipped: Collection[str] = ()) -> Fingerprint:
    """Everything below a folder but what Python compiles; a link is what it points to.

    Paths in `skipped`, and what is below them, do not count; nor does what cannot be looked at, as
    links to nowhere and folders of others below this one.
    """
    return frozenset(_below(str(folder), skipped))


def _below(folder: str, skipped: Collection[str]) -> Iterator[tuple[str, int, int]]:
    todo, entered = _entries(folder), set[tuple[int, int]]()
    while todo:
        entry = todo.pop()
        if entry.name == _MADE_BY_LOADING or entry.path in skipped:
            continue
        with suppress(OSError):  # gone already, or out of reach
            status = entry.stat()
            if not entry.is_dir():
                yield entry.path, status.st_mtime_ns, status.st_size
            elif (identity := (status.st_dev, status.st_ino)) not in entered:
                entered.add(identity)
                yield entry.path, 0, 0
                todo += _entries(entry.path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return list(entries)


def read_labels(config: ModelConfig, folder: Path) -> Mapping[str, Sequence[bytes]]:
    """The labels of every output that names a file in the model's folder, one line an index."""
    files = {o.name: folder / o.label_filename for o in config.output if o.label_filename}
    return {output: _lines(path) for output, path in files.items()}


def _lines(path: Path) -> Sequence[bytes]:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InternalError(
            f"failed to open text file for read {path}: {error.strerror}"
        ) from error
    return text.removesuffix(b"\n").split(b"\n")
