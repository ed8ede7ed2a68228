"""A model and those that it is composed of, whose settings are searched with its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.core.nearest_name import suggestion
from penstock_client.perf.errors import Status
from penstock_client.tune.errors import TuneError
from penstock_client.tune.model_files import ModelFiles, read_files

Reader = Callable[[str], ModelFiles]
"""Reads the files of a model; raises `TuneError`."""

_SLASH = "/"
MOST_PARTS = 4
"""Models of an ensemble that are searched unasked; Model Analyzer takes as many."""


@dataclass(frozen=True, slots=True)
class Composition:
    """The model that is tuned, and composing models by name.

    Names of settings of the latter begin with the model's: `MODEL/instances`. `neighbours` are the
    folders of all other models beside them.
    """

    main: ModelFiles
    parts: Mapping[str, ModelFiles] = field(default_factory=dict)
    neighbours: tuple[Path, ...] = ()

    @property
    def models(self) -> Iterator[ModelFiles]:
        """All of them; those that others need come first."""
        yield from self.parts.values()
        yield self.main

    def owner(self, setting: str) -> tuple[ModelFiles, str]:
        """The model that a setting belongs to, and the setting's name there."""
        model, slash, rest = setting.partition(_SLASH)
        return (self.parts[model], rest) if slash and model in self.parts else (self.main, setting)

    def divided(self, changes: Mapping[str, Any]) -> list[tuple[ModelFiles, dict[str, Any]]]:
        """Each model with what a variant changes of it, in the order of `models`."""
        own: dict[str, dict[str, Any]] = {each.name: {} for each in self.models}
        for name, value in changes.items():
            files, setting = self.owner(name)
            own[files.name][setting] = value
        return [(each, own[each.name]) for each in self.models]

    def write_variant(self, changes: Mapping[str, Any], target: Path) -> None:
        """Write a repository with this variant; raises `VariantError`.

        All but the changed files are links to the originals.
        """
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for neighbour in self.neighbours:
            (target / neighbour.name).symlink_to(neighbour)
        for files, own in self.divided(changes):
            files.write(own, target)


def part_setting(model: str, setting: str) -> str:
    """The name of a composing model's setting."""
    return f"{model}{_SLASH}{setting}"


def is_of_part(setting: str) -> bool:
    """Whether a setting's name begins with that of a composing model."""
    return _SLASH in setting


def named_parts(settings: Iterable[str]) -> list[str]:
    """The composing models that names of settings begin with."""
    return [name.partition(_SLASH)[0] for name in settings if is_of_part(name)]


def read_composition(
    repositories: Sequence[Path], name: str, asked: Sequence[str], *, with_steps: bool
) -> Composition:
    """Find a model in repositories, and composing models; raises `TuneError`.

    These are those that are `asked` for, and `with_steps` those of an ensemble's steps.
    """
    folders = [entry.absolute() for path in repositories for entry in _models(path)]
    by_name = {folder.name: folder for folder in reversed(folders)}
    where = ", ".join(map(str, repositories))

    def read(model: str) -> ModelFiles:
        if model not in by_name:
            known = sorted(by_name)
            hint = suggestion(model, known) or f"; there are {', '.join(known) or 'none'}"
            raise TuneError(f"no model '{model}' in {where}{hint}", Status.UNREACHABLE)
        return read_files(by_name[model])

    main = read(name)
    wanted = [*asked, *(steps(main, read) if with_steps else ())]
    parts = {each: read(each) for each in dict.fromkeys(wanted) if each != name}
    others = (folder for folder in by_name.values() if folder.name not in (name, *parts))
    return Composition(main, parts, tuple(others))


def steps(main: ModelFiles, read: Reader) -> list[str]:
    """The models that do the work of an ensemble, those of ensembles in it too; 4 at most."""
    found: dict[str, None] = {}
    seen, open_ones = {main.name}, list(main.steps)
    while open_ones:
        name = open_ones.pop(0)
        if name in seen:
            continue
        seen.add(name)
        further = read(name).steps
        open_ones += further
        if not further:
            found[name] = None
    return list(found)[:MOST_PARTS]


def _models(repository: Path) -> list[Path]:
    try:
        return sorted(entry for entry in repository.iterdir() if entry.is_dir())
    except OSError as error:
        text = f"model repository {repository} cannot be read: {error.strerror}"
        raise TuneError(text, Status.UNREACHABLE) from error
