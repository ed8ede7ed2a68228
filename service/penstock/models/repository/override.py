"""What a load request puts in place of the repository's files (contract X-17, X-18)."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.core.errors import InvalidRequestError, ModelLoadError

CONFIG = "config"
FILE = "file:"


@dataclass(frozen=True, slots=True)
class ModelOverride:
    """A configuration as JSON, and files by `file:<path in the model's folder>`."""

    config: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)

    @classmethod
    def of(cls, parameters: Mapping[str, str | bytes]) -> ModelOverride | None:
        """What the parameters of a load say; `None` when they say nothing."""
        config: str | None = None
        files: dict[str, bytes] = {}
        for name, value in parameters.items():
            if name == CONFIG and isinstance(value, str):
                config = value
            elif name.startswith(FILE) and isinstance(value, bytes):
                files[name] = value
            else:
                raise InvalidRequestError(f"unrecognized load parameter '{name}'.")
        return cls(config, files) if parameters else None

    def write(self, folder: Path) -> None:
        """Write the files below `folder`; raises `ModelLoadError` for one that would leave it."""
        for name, content in self.files.items():
            path = _inside(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def _inside(folder: Path, name: str) -> Path:
    """Where the file of a parameter belongs; a leading slash means nothing."""
    root = os.path.normpath(folder)
    path = os.path.normpath(f"{root}/{name.removeprefix(FILE)}")
    if not path.startswith(f"{root}{os.sep}") or "\0" in path:
        raise ModelLoadError(
            f"Invalid file parameter '{name}' with normalized path '{path}' must stay within"
            " model directory."
        )
    return Path(path)
