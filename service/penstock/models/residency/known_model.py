"""`KnownModel`: a model of the repository, loaded or not, and what its parameters say of that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from pathlib import Path

from penstock.core.config import ModelConfig
from penstock.core.errors import ConfigError
from penstock.core.request import ANY_VERSION
from penstock.models.loading.acceptance import settled
from penstock.models.repository.repository import ModelFiles, select_versions
from penstock.models.serving.answers import ModelMetadata, model_metadata
from penstock.models.sizing.estimate import ModelFacts
from penstock.models.sizing.measured import stamped_facts

_KEPT = "penstock.residency"
_IDLE_SECONDS = "penstock.idle_seconds"
_MIN_RESIDENT_SECONDS = "penstock.min_resident_seconds"
_REST_SECONDS = "penstock.rest_seconds"
_SLEEP_LEVEL = "penstock.sleep_level"
_MOMENT = 1.0
"""Seconds for which a model stays at least, unless its configuration says another number."""


class Kept(StrEnum):
    """When a model is loaded, and whether it may go again: `penstock.residency`."""

    ALWAYS = "always"
    DEMAND = "demand"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model of the repository, which is loaded or not; its configuration is complete if it was
    loaded once.
    """

    config: ModelConfig
    folders: Mapping[int, Path]
    kept: Kept = Kept.DEMAND
    idle_seconds: float = 0.0
    min_resident_seconds: float = _MOMENT
    rest_seconds: float = 0.0
    sleep_level: int = 1

    @property
    def complete(self) -> bool:
        """Whether the configuration has the tensors, which backends may be left to add."""
        return bool(self.config.input and self.config.output)

    def serves(self, version: int) -> bool:
        """Whether a call of this version, or of any, finds it once the model is loaded."""
        return version == ANY_VERSION or version in self._versions()

    def metadata(self) -> ModelMetadata:
        """Its tensors and platform, and the versions that will be served."""
        return model_metadata(self.config, self._versions())

    def facts(self, gpus: Sequence[int]) -> Iterator[ModelFacts]:
        """What its memory is estimated from, of each version that is served.

        None where its files lie elsewhere. Raises `ModelLoadError` for damaged files.
        """
        config = settled(self.config, gpus)
        for version in self._versions():
            if (folder := self.folders[version]).is_dir():
                yield stamped_facts(config, version, folder)

    def _versions(self) -> list[int]:
        return select_versions(self.config.version_policy, self.folders)

    @classmethod
    def read(cls, files: ModelFiles) -> KnownModel:
        """What the files say; raises `ConfigError` for a wrong value of ours."""
        config = files.config
        return cls(
            config,
            files.versions,
            _kept(config),
            _seconds(config, _IDLE_SECONDS, 0.0),
            _seconds(config, _MIN_RESIDENT_SECONDS, _MOMENT),
            _seconds(config, _REST_SECONDS, 0.0),
            _level(config),
        )


def _level(config: ModelConfig) -> int:
    text = config.parameter(_SLEEP_LEVEL) or "1"
    if text not in ("1", "2"):
        raise ConfigError(f"parameter '{_SLEEP_LEVEL}' must be 1 or 2, got '{text}'")
    return int(text)


def _kept(config: ModelConfig) -> Kept:
    text = config.parameter(_KEPT) or Kept.DEMAND
    try:
        return Kept(text)
    except ValueError:
        ways = ", ".join(f'"{one}"' for one in Kept)
        raise ConfigError(f"parameter '{_KEPT}' must be one of {ways}, got '{text}'") from None


def _seconds(config: ModelConfig, name: str, default: float) -> float:
    text = config.parameter(name)
    try:
        seconds = default if text is None else float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < inf:
        raise ConfigError(f"parameter '{name}' must be a number of seconds, got '{text}'")
    return seconds
