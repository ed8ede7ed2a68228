"""`Draft`: the folder of a model in the making: its files, and its configuration with reasons."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import normpath

from penstock.core.config import ModelConfig
from penstock.core.errors import InvalidRequestError
from penstock.core.file_names import wrong_name
from penstock.models.repository.repository import check_name
from penstock.settings import ModelFile, Task

_LONGEST_REASON = 300


class SourceError(Exception):
    """What was given is no model that can be served as it is; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user says of models that their files do not.

    `device` is `cpu`, `gpu` or `gpu:NUMBER,...`. Batches have `max_batch_size` rows at most; `None`
    leaves that to the engine. With `version`, a model has that one.
    """

    task: Task | None = None
    device: str = ""
    max_batch_size: int | None = None
    instances: int | None = None
    version: int = 1


NO_WISHES = Wishes()


@dataclass(slots=True)
class Draft:
    """A model's folder: links, and texts to write, by their paths from the version's folder.

    What lies `beside` the model some need and most do not. What `config` says already, as its
    owner wrote it in `own_text`, is not said again. Engines of language models `batches` not: they
    do it inside.
    """

    name: str
    links: dict[str, Path] = field(default_factory=dict)
    beside: dict[str, Path] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    config: ModelConfig = field(default_factory=ModelConfig)
    own_text: str = ""
    batches: bool = True
    _lines: list[str] = field(default_factory=list)

    def add(self, line: str, why: str) -> None:
        """Add a line of the configuration, with the reason for it as a comment of one line.

        The reason may hold what stands in a file of a stranger.
        """
        self._lines.append(f"# {one_line(why)}\n{line}")

    def backend(self, name: str, why: str, platform: str = "") -> None:
        """Choose the backend, unless the configuration has one."""
        if not (self.config.backend or self.config.platform):
            self.add(f'backend: "{name}"', why)
            if platform:
                self.add(f'platform: "{platform}"', "the kind of file, as Triton names it")

    def filename(self, name: str, why: str) -> None:
        """Name the file in the version's folder."""
        if not self.config.default_model_filename:
            self.add(f"default_model_filename: {quoted(name)}", why)

    def parameter(self, key: str, value: str, why: str) -> None:
        """Set a parameter, unless the configuration has it."""
        if self.config.parameter(key) is None:
            self.add(
                f'parameters {{ key: "{key}" value {{ string_value: {quoted(value)} }} }}', why
            )

    def model_file(self, wishes: Wishes, *, alone: bool = False) -> ModelFile:
        """The whole folder; `alone`, without what lies beside the model.

        Called once. Raises `SourceError` for a name that no model may have, and for wishes that
        the model's own configuration contradicts.
        """
        _check_name(self.name)
        for path in self.links.values():
            _check_file(path)
        self._add_wishes(wishes)
        version = f"{wishes.version}"
        texts = {normpath(f"{version}/{name}"): text for name, text in self.texts.items()}
        texts["config.pbtxt"] = "\n".join([*self._lines, self.own_text.rstrip()]).rstrip() + "\n"
        links = self.links if alone else self.beside | self.links
        linked = {normpath(f"{version}/{name}"): path for name, path in links.items()}
        return ModelFile(
            self.name, {n: p for n, p in linked.items() if n not in {*texts, version}}, texts
        )

    def _add_wishes(self, wishes: Wishes) -> None:
        if wishes.max_batch_size is not None:
            if not self.batches:
                raise SourceError(f"'{self.name}' batches by itself, whatever is asked for")
            self._refuse_own("max_batch_size", bool(self.config.max_batch_size))
            self.add(f"max_batch_size: {wishes.max_batch_size}", "as asked for")
            if wishes.max_batch_size > 1 and not self.config.dynamic_batching:
                self.add("dynamic_batching { }", "so that batches form of several requests")
        if group := _instance_group(wishes):
            self._refuse_own("instance_group", bool(self.config.instance_group))
            self.add(f"instance_group [ {{ {group} }} ]", "as asked for")

    def _refuse_own(self, field: str, given: bool) -> None:
        if given:
            raise SourceError(
                f"'{self.name}' has a configuration of its own, which says '{field}': change it"
                " there"
            )


def _instance_group(wishes: Wishes) -> str:
    kind, _, numbers = wishes.device.partition(":")
    parts = []
    if wishes.instances is not None:
        parts.append(f"count: {wishes.instances}")
    if kind:
        parts.append(f"kind: KIND_{kind.upper()}")
    if numbers:
        parts.append(f"gpus: [ {', '.join(numbers.split(','))} ]")
    return " ".join(parts)


def _check_name(name: str) -> None:
    try:
        check_name(name)
    except InvalidRequestError as error:
        raise SourceError(f"{error}; give one as NAME=MODEL") from error
    if name.startswith("."):
        raise SourceError(f"a model that is called '{name}' would be hidden; give another name")


def _check_file(path: Path) -> None:
    """Refuse a file whose name no configuration can hold."""
    wrong = wrong_name(path.name)
    if not (wrong or path.name.isprintable()):
        wrong = "it is no text"
    if wrong:
        raise SourceError(f"the file {str(path)!r} cannot be called so in a model: {wrong}")


def safe_name(name: str) -> str:
    """A name that a model may have, as near as may be."""
    return re.sub(r"[^\w.-]", "_", name).lstrip(".") or "model"


def one_line(text: str) -> str:
    """A text of a stranger that may stand in a line: without control characters, and not long."""
    return "".join(each if each.isprintable() else " " for each in text)[:_LONGEST_REASON]


def quoted(text: str) -> str:
    """A text as it stands in a configuration."""
    return json.dumps(text, ensure_ascii=False)


def as_json(values: Mapping[str, object]) -> str:
    """The text of a file of settings."""
    return json.dumps(values, indent=2) + "\n"
