"""`VersionFiles`: the files of a model version, their fingerprint, and its class labels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.core.config import ModelConfig
from penstock.models.repository.named_file import read_named
from penstock.models.repository.places import Fingerprint, fingerprint
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
    """The origin of a loaded version: its configuration as read, fingerprints of its files, and its
    namespace, if it has one.

    `config_files` are the files that configurations are read from.
    """

    config: ModelConfig
    files: Fingerprint
    config_files: Fingerprint = frozenset()
    namespace: str = ""

    def has_files_of(self, other: Origin) -> bool:
        """Whether no file has changed, nor been touched, nor come to another namespace."""
        mine = (self.files, self.config_files, self.namespace)
        return mine == (other.files, other.config_files, other.namespace)

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
    others = {path.name for number, path in files.versions.items() if number != version}
    found = fingerprint(files.path, others)
    inside = f"{_CONFIGS}{os.sep}"
    config_files = {f for f in found if f[0] in (CONFIG_FILE, _CONFIGS) or f[0].startswith(inside)}
    return Origin(files.config, found - config_files, frozenset(config_files), files.namespace)


_CONFIGS = "configs"


def read_labels(config: ModelConfig, folder: Path) -> Mapping[str, Sequence[bytes]]:
    """The class labels of each output with a label file in the model's folder, one a line."""
    files = {o.name: o.label_filename for o in config.output if o.label_filename}
    return {output: _lines(read_named(folder, name)) for output, name in files.items()}


def _lines(text: bytes) -> Sequence[bytes]:
    return text.removesuffix(b"\n").split(b"\n")
