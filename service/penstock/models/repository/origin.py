"""`Origin`: what a model version was loaded from, to see later what has changed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.core.config import ModelConfig
from penstock.models.repository.fingerprint import Fingerprint, fingerprint
from penstock.models.repository.repository import CONFIG_FILE, ModelFiles


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
