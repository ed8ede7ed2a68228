"""`Origin`: what a model version was loaded from, to see later what has changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from penstock.core.config import ModelConfig
from penstock.models.repository import CONFIG_FILE, ModelFiles


@dataclass(frozen=True, slots=True)
class Origin:
    """What a version was loaded from: its configuration as polled, and the state of its files."""

    config: ModelConfig
    files: frozenset[tuple[str, int, int]]

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
    others = {path for path in files.versions.values() if path != ours}
    skipped = others | {files.path / "configs", files.path / CONFIG_FILE}
    found = {*_files(files.path, skipped), *_files(ours, set())}
    return Origin(files.config, frozenset(found))


def _files(top: Path, skipped: set[Path]) -> Iterator[tuple[str, int, int]]:
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if Path(folder, name) not in skipped]
        for name in names:
            if (path := Path(folder, name)) not in skipped and path.exists():
                about = path.stat()
                yield str(path), about.st_mtime_ns, about.st_size
