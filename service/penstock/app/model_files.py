"""A temporary model repository for models that are given as files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.settings import ModelFile, RepositorySettings


@contextmanager
def with_model_files(settings: RepositorySettings) -> Iterator[RepositorySettings]:
    """The settings with a temporary repository of the files among its paths, removed at the end.

    It holds symbolic links, so a reload reads the file again. In explicit control mode the files'
    models are loaded at start-up too.
    """
    if not settings.files:
        yield settings
        return
    with TemporaryDirectory(prefix="penstock-serve-", ignore_cleanup_errors=True) as folder:
        for file in settings.files:
            _write(file, Path(folder, file.name))
        paths = (*settings.paths, folder)
        yield replace(settings, paths=paths, startup_models=_startup_models(settings))


def _startup_models(settings: RepositorySettings) -> tuple[str, ...]:
    if settings.loads_everything:
        return settings.startup_models
    return (*settings.startup_models, *(file.name for file in settings.files))


def _write(file: ModelFile, folder: Path) -> None:
    """Make the model's directory; its version links the file and its neighbours."""
    version = folder / "1"
    version.mkdir(parents=True)
    if file.class_name:
        filename = json.dumps(f"{file.path.name}:{file.class_name}", ensure_ascii=False)
        config = f'backend: "python"\ndefault_model_filename: {filename}\n'
    else:
        config = file.config
    (folder / "config.pbtxt").write_text(config)
    belongs = _belongs if file.class_name else _is_data
    for entry in file.path.parent.iterdir():
        if entry in folder.parents or not (entry == file.path or belongs(entry)):
            continue
        (version / entry.name).symlink_to(entry)
        beside = folder / entry.name
        if not file.class_name and not beside.exists():
            beside.symlink_to(entry)  # labels belong there


def _is_data(entry: Path) -> bool:
    """Whether a model of an engine may need it: weights, labels, a tokenizer; not whole folders."""
    return not entry.name.startswith(".") and entry.name != "config.pbtxt" and os.path.isfile(entry)


def _belongs(entry: Path) -> bool:
    """Whether a model may need it: caches, hidden files and virtual environments are left out.

    So is a `config.pbtxt`, which belongs above the version: the server would warn of it.
    """
    if entry.name.startswith(".") or entry.name in ("__pycache__", "config.pbtxt"):
        return False
    return not os.path.exists(entry / "pyvenv.cfg")  # also where it may not be looked at
