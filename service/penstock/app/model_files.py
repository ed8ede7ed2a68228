"""A temporary model repository for models that are given as Python files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.settings import ModelFile, RepositorySettings


@contextmanager
def with_model_files(settings: RepositorySettings) -> Iterator[RepositorySettings]:
    """The settings with a repository of the files among its paths, which is removed at the end.

    It holds links, so that a model that is loaded again is read from its file again. Where clients
    say what is loaded, the files' models are loaded at the start all the same.
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
    """A model whose version has the file, and what lies beside it."""
    version = folder / "1"
    version.mkdir(parents=True)
    for entry in file.path.parent.iterdir():
        if _belongs(entry):
            (version / entry.name).symlink_to(entry)
    filename = json.dumps(f"{file.path.name}:{file.class_name}", ensure_ascii=False)
    config = f'backend: "python"\ndefault_model_filename: {filename}\n'
    (folder / "config.pbtxt").write_text(config)


def _belongs(entry: Path) -> bool:
    """Whether a model may need it; not caches, hidden files and virtual environments.

    Nor a `config.pbtxt`, which the server would look for above the version and warn of.
    """
    if entry.name.startswith(".") or entry.name in ("__pycache__", "config.pbtxt"):
        return False
    return not (entry / "pyvenv.cfg").exists()
