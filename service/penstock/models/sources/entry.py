"""A model written into a repository, with a configuration that says why each line is there."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from penstock.core.backend import Inspectable, WithInterpreter
from penstock.core.config import ModelConfig
from penstock.core.errors import BackendNotInstalledError, ConfigError, InferenceError
from penstock.models.config.pbtxt import config_to_message, parse_pbtxt, read_pbtxt
from penstock.models.loading.backends import backend_of
from penstock.models.sources.draft import Draft, SourceError, Wishes
from penstock.settings import ModelFile

_PYTHON = "python"
_COMPLETED = {
    "as the engine has it": ("input", "output"),
    "the rows that the engine takes at once, or else the server's default": ("max_batch_size",),
    "so that batches form of several requests": ("dynamic_batching",),
}
"""The fields that an engine completes, and why."""


def write_entry(draft: Draft, wishes: Wishes, repository: Path, *, link: bool = False) -> Path:
    """Write the model's folder, or a further version of it; nothing that is there is changed.

    Files are copied, or with `link` linked. The engine, where it is installed, completes the
    configuration. Raises `SourceError`, and `OSError`.
    """
    file = draft.model_file(wishes, alone=True)
    target = repository / file.name
    version = str(wishes.version)
    if (target / version).exists():
        raise SourceError(
            f"'{target / version}' is there already, and nothing is overwritten: give --version, or"
            " --name"
        )
    repository.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=".import-", dir=repository))
    try:
        folder = made / file.name
        _write(file, folder, link)
        config = folder / "config.pbtxt"
        if (target / config.name).exists():
            _adapt(target / config.name, config, folder / version)
            os.rename(folder / version, target / version)
            return target
        config.write_text(config.read_text() + _completion(config, folder / version))
        if target.exists():
            raise SourceError(
                f"'{target}' is there already, and is no entry: it has no config.pbtxt"
            )
        os.rename(folder, target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return target


def _write(file: ModelFile, folder: Path, link: bool) -> None:
    for name, text in file.texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name, source in file.links.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if link:
            path.symlink_to(source.resolve())
        elif source.is_dir():
            shutil.copytree(source, path)
        else:
            shutil.copyfile(source, path)


def _adapt(own: Path, made: Path, version_path: Path) -> None:
    """Make a further version one of the configuration that is there; raises `SourceError`."""
    there, new = read_pbtxt(own), read_pbtxt(made)
    if there.backend and there.backend != new.backend:
        raise SourceError(
            f"'{own.parent}' is a model of backend '{there.backend}', and this one of"
            f" '{new.backend}': give --name"
        )
    if there.default_model_filename != new.default_model_filename:
        files = [path for path in version_path.iterdir() if path.is_file()]
        if len(files) != 1 or not there.default_model_filename or new.backend == _PYTHON:
            raise SourceError(
                f"'{own}' calls its file '{there.default_model_filename}': name yours so"
            )
        files[0].rename(version_path / there.default_model_filename)
    made.write_bytes(own.read_bytes())
    _completion(made, version_path)


def _completion(path: Path, version_path: Path) -> str:
    """The lines that the engine adds, with a comment; raises `SourceError` if it refuses."""
    config = parse_pbtxt(path.read_bytes(), path)
    try:
        found = backend_of(replace(config, name=path.parent.name), {})
        if issubclass(found.backend, WithInterpreter):
            return ""
        completing = found.backend.complete_config(found.config, version_path, {})
        completed = asyncio.run(completing)
        found.backend.check_config(completed)
        if issubclass(found.backend, Inspectable):
            found.backend.check_files(completed, version_path, {})
    except BackendNotInstalledError as error:
        return f"# What follows from the graph is completed at load: {error}\n"
    except InferenceError as error:
        told = str(error).replace(f"{path.parent}/", "")  # a folder that is gone afterwards
        raise SourceError(f"'{path.parent.name}' would not load: {told}") from error
    return "".join(_added(config, completed))


def _added(config: ModelConfig, completed: ModelConfig) -> Iterator[str]:
    for why, names in _COMPLETED.items():
        new: dict[str, Any] = {
            name: getattr(completed, name)
            for name in names
            if getattr(completed, name) != getattr(config, name)
        }
        if new:
            yield f"# {why}\n"
            try:
                yield text_format.MessageToString(config_to_message(ModelConfig(**new)))
            except ConfigError as error:
                raise SourceError(str(error)) from error
