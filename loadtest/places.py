"""Places for results, as types of options: what cannot be written is told before a long load."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from pathlib import Path


def results_file(text: str) -> Path:
    """The path of a file in a folder that is there."""
    path = Path(text)
    if path.is_dir():
        raise ArgumentTypeError(f"{path} is a directory")
    if not path.parent.is_dir():
        raise ArgumentTypeError(f"there is no directory {path.parent}")
    _check_permission(path if path.exists() else path.parent)
    return path


def results_folder(text: str) -> Path:
    """The path of a folder, which is made if it is not there."""
    path = Path(text)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentTypeError(f"{path}: {error.strerror}") from error
    _check_permission(path)
    return path


def _check_permission(path: Path) -> None:
    if not os.access(path, os.W_OK):
        raise ArgumentTypeError(f"no permission to write {path}")
