"""A temporary model repository for models that are given as files."""

from __future__ import annotations

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
    """Make the model's folder."""
    for name, text in file.texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name, path in file.links.items():
        if path not in folder.parents:  # which would hold itself
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(path)
