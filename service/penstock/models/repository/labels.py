"""Label files: what the indices of an output stand for (contract X-03)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.core.config import ModelConfig
from penstock.core.errors import InternalError


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
