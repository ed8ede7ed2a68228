"""`VersionFiles`: the files of a model version, their fingerprint, and its class labels."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.core.config import ModelConfig
from penstock.models.repository.named_file import read_named
from penstock.models.repository.repository import CONFIG_FILE, ModelFiles


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """The files of one version; `config` is complete, `labels` are by output."""

    files: ModelFiles
    number: int
    config: ModelConfig
    labels: Mapping[str, Sequence[bytes]]
    origin: Origin

    @classmethod
    def read(cls, files: ModelFiles, number: int, config: ModelConfig) -> VersionFiles:
        """The version with its labels and origin. Reads the disk."""
        labels = read_labels(config, files.path)
        return cls(files, number, config, labels, origin_of(files, number))

    @property
    def path(self) -> Path:
        """The folder of this version."""
        return self.files.versions[self.number]


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a loaded version: its configuration as read, and fingerprints of its files.

    `config_files` are the files that configurations are read from.
    """

    config: ModelConfig
    files: Fingerprint
    config_files: Fingerprint = frozenset()

    def has_files_of(self, other: Origin) -> bool:
        """Whether no file has changed, nor been touched."""
        return (self.files, self.config_files) == (other.files, other.config_files)

    def differs_in_instances_only(self, other: Origin) -> bool:
        """Whether the instance groups differ and nothing else does but the file that says so."""
        groups = self.config.instance_group
        return (
            groups != other.config.instance_group
            and replace(other.config, instance_group=groups) == self.config
            and self.files == other.files
        )


def origin_of(files: ModelFiles, version: int) -> Origin:
    """The origin of a version: its own files and those that all versions share. Reads the disk."""
    own = files.versions[version]
    others = {str(path) for path in files.versions.values() if path != own}
    found = fingerprint(files.path, others) | fingerprint(own)
    single, folder = str(files.path / CONFIG_FILE), str(files.path / _CONFIGS)
    inside = f"{folder}{os.sep}"
    config_files = {f for f in found if f[0] in (single, folder) or f[0].startswith(inside)}
    return Origin(files.config, found - config_files, frozenset(config_files))


Fingerprint = frozenset[tuple[str, int, int]]
"""Path, modification time in nanoseconds and size of every file and folder below a folder."""

_CONFIGS = "configs"
_MADE_BY_LOADING = "__pycache__"


def fingerprint(folder: Path, skipped: Collection[str] = ()) -> Fingerprint:
    """The fingerprint of a folder, without Python's byte code; links are followed.

    Leaves out paths in `skipped`, with all below them, and what cannot be read, such as dangling
    links.
    """
    return frozenset(_below(str(folder), skipped))


def _below(folder: str, skipped: Collection[str]) -> Iterator[tuple[str, int, int]]:
    todo, entered = _entries(folder), set[tuple[int, int]]()
    while todo:
        entry = todo.pop()
        if entry.name == _MADE_BY_LOADING or entry.path in skipped:
            continue
        with suppress(OSError):  # removed meanwhile, or not accessible
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
    """The class labels of each output with a label file in the model's folder, one a line."""
    files = {o.name: o.label_filename for o in config.output if o.label_filename}
    return {output: _lines(read_named(folder, name)) for output, name in files.items()}


def _lines(text: bytes) -> Sequence[bytes]:
    return text.removesuffix(b"\n").split(b"\n")
