"""What an argument of `penstock serve` and `penstock import` names: a model, or a repository."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from penstock.core.errors import InferenceError
from penstock.models.remote.address import BucketAddress, scheme_of
from penstock.models.remote.hub_repository import HubAddress, HubRepository
from penstock.models.sources.draft import Draft, SourceError, Wishes, one_line
from penstock.models.sources.engine_file import (
    ENDINGS,
    engine_file,
    lone_file,
    model_name,
    refuse_task,
)
from penstock.models.sources.folder import HubFolder, LocalFolder
from penstock.models.sources.hugging_face import hugging_face
from penstock.models.sources.nvidia import refuse_nemo, tensorrt_llm
from penstock.models.sources.python_file import python_file
from penstock.settings import Task

_NAMED = re.compile(r"([\w.-]+)=(.+)", re.DOTALL)
_MARKS = ("saved_model.pb", "config.json", "rank0.engine", "rank0.safetensors")
"""Files that make a folder a model; one of models has none of them."""


def named(argument: str) -> tuple[str, str]:
    """The name and the source in `[NAME=]SOURCE`; a file of that whole name is a source."""
    found = None if os.path.exists(argument) else _NAMED.fullmatch(argument)
    return (found[1], found[2]) if found else ("", argument)


def model_of(source: str, wishes: Wishes, name: str = "") -> Draft | None:
    """The model of a source, by default called as it is; `None` for a repository of models.

    The hub is asked what lies there, and what is needed of it fetched. Raises `SourceError`.
    """
    if not source:
        raise SourceError("the name of a model is empty: a variable of the shell that is not set?")
    try:
        draft = _remote(source, wishes, name) if "://" in source else _local(source, wishes, name)
    except (OSError, InferenceError) as error:
        raise SourceError(one_line(str(error))) from error
    if draft is None and (name or wishes != Wishes()):
        raise SourceError(
            f"'{source}' is a repository, whose models have names and configurations of their own"
        )
    return draft


def holds_model(folder: Path) -> bool:
    """Whether a folder of this machine is a model, and not one of models, as `model_of` tells.

    Raises `SourceError` where it holds several, and `OSError`.
    """
    return not _is_repository(folder) or lone_file(folder) is not None


def _remote(address: str, wishes: Wishes, name: str) -> Draft | None:
    if scheme_of(address) != "hf":
        BucketAddress.parse(address)
        return None
    folder = HubFolder(HubRepository(HubAddress.parse(address)))
    return hugging_face(folder, name, wishes)


def _local(source: str, wishes: Wishes, name: str) -> Draft | None:
    if (found := python_file(name, source)) is not None:
        return _without_task(found, source, wishes)
    path = Path(os.path.abspath(source))
    if path.suffix == ".nemo":
        refuse_nemo(path)
    if path.suffix == ".gguf":
        return _gguf(name, path, wishes)
    if (draft := engine_file(name, path, wishes)) is not None:
        return draft
    if path.is_dir():
        if _is_repository(path):
            _refuse_entry(path)
            alone = lone_file(path)
            return None if alone is None else engine_file(name, alone, wishes)
        known = name or model_name(path)
        draft = _of_folder(path, known, wishes)
        if draft is not None:
            return draft
    scheme_of(source)  # which tells what was meant by an address with a slip
    lacking = "" if path.exists() else "There is no such file or folder. "
    raise SourceError(
        f"Unexpected argument: {source}\n{lacking}A directory of models is given as"
        " --model-repository=DIR, one model as FILE.py or FILE.py:CLASS, as a file of an engine"
        f" ({ENDINGS}, .gguf), as the folder of a SavedModel, of TensorRT-LLM or in the layout of"
        " Hugging Face, or as hf://OWNER/NAME."
    )


def _of_folder(path: Path, name: str, wishes: Wishes) -> Draft | None:
    if (draft := tensorrt_llm(path, name)) is not None:
        return draft if wishes.task is Task.GENERATE else _without_task(draft, str(path), wishes)
    return hugging_face(LocalFolder(path, name), name, wishes)


def _without_task(draft: Draft, source: str, wishes: Wishes) -> Draft:
    """A model that has a task already; raises `SourceError` for another one."""
    if wishes.task is not None:
        refuse_task(source, wishes.task)
    return draft


def _gguf(name: str, path: Path, wishes: Wishes) -> Draft | None:
    if not path.is_file():
        raise SourceError(f"there is no file '{path}'")
    return hugging_face(_OneFile(path, name or model_name(path)), name, wishes)


class _OneFile(LocalFolder):
    """A GGUF file, and the tokenizer beside it."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(path.parent, name)
        self._names = [path.name]
        self._names += [
            each
            for each in ("tokenizer.json", "tokenizer_config.json")
            if (path.parent / each).is_file()
        ]

    def names(self) -> list[str]:
        return self._names


def _is_repository(path: Path) -> bool:
    """Whether a folder holds models, and is none itself."""
    return not any((path / mark).exists() for mark in _MARKS) and not any(path.glob("*.gguf"))


def _refuse_entry(path: Path) -> None:
    """Refuse a model's folder in a repository, whose versions are no models.

    And the folder of TensorFlow Serving, whose versions are models themselves.
    """
    folders = [each.parent for each in path.glob("*/saved_model.pb")]
    versions = [each for each in folders if each.name.isascii() and each.name.isdecimal()]
    if versions:
        newest = shlex.quote(str(max(versions, key=lambda each: int(each.name))))
        raise SourceError(f"'{path}' has versions of a SavedModel: give one, such as {newest}")
    if (path / "config.pbtxt").is_file():
        raise SourceError(
            f"'{path}' is a model in a repository: serve it with penstock serve"
            f" {shlex.quote(str(path.parent))} --model-control-mode=explicit"
            f" --load-model={shlex.quote(path.name)}"
        )
