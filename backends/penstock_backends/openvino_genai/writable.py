"""Model files that may be read only, for an engine that opens them for writing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


@contextmanager
def writable(model: Path) -> Iterator[Path]:
    """The model's path, or that of a copy where we may not write, which is gone afterwards.

    The engine's GGUF reader insists on write access and changes nothing; a repository that is
    mounted read-only, or belongs to another user, has none to give. Folders are read as such.
    """
    if model.is_dir() or os.access(model, os.W_OK):
        yield model
        return
    with TemporaryDirectory(prefix="penstock-model-") as folder:
        yield Path(shutil.copyfile(model, Path(folder, model.name)))
