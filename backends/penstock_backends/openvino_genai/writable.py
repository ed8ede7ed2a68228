"""Copies of read-only model files, for an engine that opens them for writing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def writable(model: Path) -> Iterator[Path]:
    """The model's path; or that of a temporary copy if the file is not writable.

    The engine's GGUF reader opens files for writing though it changes nothing, which fails in a
    repository that is mounted read-only or belongs to another user. Folders need no copy.
    """
    if model.is_dir() or os.access(model, os.W_OK):
        yield model
        return
    with TemporaryDirectory(prefix="penstock-model-") as folder:
        yield Path(shutil.copyfile(model, Path(folder, model.name)))
