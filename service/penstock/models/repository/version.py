"""`ModelVersion`: what a version of a model is to be, read and complete; nothing of it runs yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.core.config import ModelConfig
from penstock.models.repository.labels import read_labels
from penstock.models.repository.origin import Origin, origin_of
from penstock.models.repository.repository import ModelFiles


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """`config` has all that the files' own leaves out; `labels` are by output."""

    files: ModelFiles
    number: int
    config: ModelConfig
    labels: Mapping[str, Sequence[bytes]]
    origin: Origin

    @classmethod
    def read(cls, files: ModelFiles, number: int, config: ModelConfig) -> ModelVersion:
        """The version with what else its files hold. Reads the disk."""
        labels = read_labels(config, files.path)
        return cls(files, number, config, labels, origin_of(files, number))

    @property
    def path(self) -> Path:
        """The folder of this version."""
        return self.files.versions[self.number]
