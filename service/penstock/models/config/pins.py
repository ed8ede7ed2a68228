"""Pins: the hashes that a configuration demands of the model's files.

`penstock.sha256:FILE` is a parameter with the SHA-256 of a file in hexadecimal digits. Triton's
repository agent `checksum` has parameters `MD5:FILE` (R-39).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.config import ModelConfig, RepositoryAgent
from penstock.core.errors import shortened
from penstock.core.file_names import wrong_name

SHA256 = "penstock.sha256:"
"""The beginning of the names of our parameters."""

_MD5 = "MD5:"
_CHECKSUM = "checksum"
_DIGITS = {SHA256: 64, _MD5: 32}
_ALGORITHMS = {SHA256: "sha256", _MD5: "md5"}


@dataclass(frozen=True, slots=True)
class Pin:
    """The digest that a file must have, as it is written; the name of the file is in `key`."""

    key: str
    digest: str

    @property
    def file(self) -> str:
        """The path of the file in the model's folder."""
        return self.key.partition(":")[2]

    @property
    def algorithm(self) -> str:
        """The hash, as `hashlib` calls it."""
        return _ALGORITHMS[self._kind]

    @property
    def _kind(self) -> str:
        return self.key[: len(self.key) - len(self.file)]

    def problem(self) -> str:
        """What is wrong with how it is written; empty if nothing is."""
        where = f"'{shortened(self.key)}'"
        digits = _DIGITS.get(self._kind)
        if digits is None:
            return f"{where} must be '{_MD5}' and the path of a file in the model's folder"
        if wrong := wrong_name(self.file):
            return f"{where} names no path of a file in the model's folder: {wrong}"
        if not re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", self.digest):
            return f"{where} must be {digits} hexadecimal digits, not '{shortened(self.digest)}'"
        return ""


def pins_of(config: ModelConfig) -> Iterator[Pin]:
    """The pins of a model, by parameters and by agents."""
    for key, parameter in config.parameters.items():
        if key.startswith(SHA256):
            yield Pin(key, parameter.string_value)
    for agent in _agents(config):
        if agent.name == _CHECKSUM:
            for key, digest in agent.parameters.items():
                yield Pin(key, digest)


def pin_problems(config: ModelConfig) -> Iterator[str]:
    """Pins are names of files and digests; there is one repository agent."""
    for agent in _agents(config):
        if agent.name != _CHECKSUM:
            yield (
                f"model '{config.name}': repository agent '{shortened(agent.name)}' is not"
                f" supported by this version of Penstock: only '{_CHECKSUM}' is"
            )
    for pin in pins_of(config):
        if problem := pin.problem():
            yield f"model '{config.name}': {problem}"


def _agents(config: ModelConfig) -> tuple[RepositoryAgent, ...]:
    agents = config.model_repository_agents
    return () if agents is None else agents.agents
