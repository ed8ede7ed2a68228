"""The command `penstock check`: what of a repository will load, without loading it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from penstock import __version__
from penstock.cli.arguments import UsageError, parse_arguments
from penstock.core.errors import InferenceError
from penstock.models.checking.findings import Report
from penstock.models.checking.formats import FORMATS
from penstock.models.checking.local_copies import local_copies
from penstock.models.checking.repository_check import RepositoryCheck
from penstock.models.checking.version_check import CheckSettings
from penstock.models.config.gpus import visible_gpus
from penstock.models.remote.remote_repositories import RemoteRepositories
from penstock.models.repository.integrity import SignatureKey
from penstock.models.repository.repository import CONFIG_FILE, ModelRepository
from penstock.models.sources.draft import SourceError
from penstock.models.sources.recognise import holds_model
from penstock.settings import Settings
from penstock.settings.rules import SettingsError
from penstock.system.cpu_share import cores

_OF_SERVE = (
    "allow-unsafe-models",
    "backend-config",
    "backend-directory",
    "model-config-name",
    "model-signature-key",
    "repository-cache-byte-size",
    "repository-cache-dir",
)
_SWITCHES = ("cpu-only", "disable-auto-complete-config")
"""Options of `serve` that change what loads."""

_VERSION = re.compile("0|[1-9][0-9]*")
"""Names of folders of versions."""
_MODEL = "[0-9]*/model.*"
"""Files of a model that may have no configuration."""

_FOUND, _UNCHECKED = 1, 2
"""Exit statuses: something was found; nothing could be checked."""


def parser() -> ArgumentParser:
    """The parser of the command line."""
    made = ArgumentParser(
        "penstock check",
        description="Say what of a model repository will load, and what is wrong with the rest:"
        " file, line, reason and what to write. Loads nothing, and needs no GPU.",
    )
    made.add_argument(
        "subjects",
        metavar="REPOSITORY | MODEL | FILE",
        nargs="+",
        help="repositories, as directories or addresses such as s3://BUCKET/PATH; names of models"
        " in them, by default all; or files and directories of models, as pre-commit gives them",
    )
    made.add_argument("--format", choices=FORMATS, default="text", help="default: %(default)s")
    made.add_argument("--strict", action="store_true", help="let warnings count for the status")
    made.add_argument("--gpus", type=_count, metavar="N", help="GPUs of the machine that is meant")
    made.add_argument("--cores", type=_count, metavar="N", help="its cores; default: those here")
    for name in _OF_SERVE:
        made.add_argument(f"--{name}", action="append", default=[], help="as for serve")
    for name in _SWITCHES:
        made.add_argument(f"--{name}", action="store_true", help="as for serve")
    return made


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 6):
        raise ArgumentTypeError(f"'{text}' is not a number")
    return int(text)


def run(arguments: Sequence[str]) -> int:
    """Check, and print what was found; the exit status."""
    chosen = parser().parse_intermixed_args(arguments)
    try:
        reports = [_checked(server, chosen) for server in _sorted_out(chosen.subjects)]
    except (UsageError, SettingsError, InferenceError, OSError) as error:
        print(f"penstock check: {error}", file=sys.stderr, flush=True)
        return _UNCHECKED
    report = Report(tuple(model for each in reports for model in each.models))
    if text := FORMATS[chosen.format](report, __version__):
        print(text)
    return _FOUND if report.fails(strict=chosen.strict) else 0


def _settings(server: _Server, chosen: Namespace) -> Settings:
    """The settings of a server of these repositories, with its options that are given."""
    given = vars(chosen)
    options = [f"--model-repository={path}" for path in server.paths]
    options += [
        f"--{name}={value}" for name in _OF_SERVE for value in given[name.replace("-", "_")]
    ]
    options += [f"--{name}" for name in _SWITCHES if given[name.replace("-", "_")]]
    if server.config_name:
        options.append(f"--model-config-name={server.config_name}")
    return parse_arguments(options, os.environ, lambda text: print(text, file=sys.stderr))


def _checked(server: _Server, chosen: Namespace) -> Report:
    settings, names = _settings(server, chosen), [*server.names]
    repository = settings.repository
    visible = visible_gpus() if chosen.gpus is None else list(range(chosen.gpus))
    how = CheckSettings(
        settings.backends.options_for,
        auto_complete=repository.auto_complete_config,
        gpus=() if settings.devices.cpu_only else visible,
        cpu_only=settings.devices.cpu_only,
        other_machine=chosen.gpus is None,
        cores=cores() if chosen.cores is None else chosen.cores,
        signature_key=SignatureKey(Path(key)) if (key := repository.signature_key) else None,
    )
    cache = RemoteRepositories(repository.cache_dir, repository.cache_size, os.environ)
    config_name = repository.config_name
    with (
        closing(cache) as remote,
        local_copies([*server.paths], names, remote.open, config_name) as copies,
    ):
        models = ModelRepository([*copies.roots], config_name, namespacing=repository.namespacing)
        check = RepositoryCheck(models, copies.roots, how, copies.unfetched, copies.left_out)
        return asyncio.run(check.run(names))


@dataclass(slots=True)
class _Server:
    """The repositories of one server, the models to check there, by default all, and the name of
    the configurations that it reads. Names are kept in order, as keys.
    """

    paths: dict[str, None] = field(default_factory=dict)
    names: dict[str, None] = field(default_factory=dict)
    config_name: str = ""


def _sorted_out(subjects: Iterable[str]) -> list[_Server]:
    """The servers of the repositories among the arguments: one of those that are named, and one of
    each that files and folders of models lie in, as these may be of different servers.
    """
    named = _Server()
    around: dict[tuple[str, str], _Server] = {}
    for subject in subjects:
        folder = None if "://" in subject else _model_folder(Path(os.path.abspath(subject)))
        if folder is not None:
            place, config_name = _from_here(folder.parent), _config_name(Path(subject))
            server = around.setdefault(
                (place, config_name), _Server({place: None}, config_name=config_name)
            )
            server.names[folder.name] = None
        elif "/" in subject or os.path.isdir(subject):
            if "://" not in subject and os.path.exists(subject):
                _refuse_source(subject)
            named.paths[subject] = None
        else:
            named.names[subject] = None
    if named.names and not named.paths:
        raise UsageError(
            f"there is no repository '{next(iter(named.names))}'; one is named before models, as a"
            " directory or an address"
        )
    return [*([named] if named.paths else []), *around.values()]


def _refuse_source(subject: str) -> None:
    """Raise `UsageError` for a model that lies in no repository, which `serve` takes as well."""
    path = Path(subject)
    try:
        if path.is_file() or holds_model(path):
            where = shlex.quote(subject)
            raise UsageError(
                f"'{subject}' is no repository; if it is a model, write it into one:"
                f" penstock import {where} DIR"
            )
    except SourceError as error:  # several models, which say so
        raise UsageError(str(error)) from error


def _model_folder(path: Path) -> Path | None:
    """The folder of the model that a path is, or lies in; `None` for a repository, or nothing."""
    is_file = path.is_file()
    if is_file and _config_name(path):
        return path.parent.parent
    places = path.parents if is_file else (path,)
    if found := next((each for each in places if (each / CONFIG_FILE).is_file()), None):
        return found
    if is_file:
        return next((each.parent for each in places if _VERSION.fullmatch(each.name)), None)
    return path if any(_VERSION.fullmatch(file.parent.name) for file in path.glob(_MODEL)) else None


def _config_name(path: Path) -> str:
    """The name of a configuration besides `config.pbtxt`, for its file; else empty."""
    return path.stem if path.parent.name == "configs" and path.suffix == ".pbtxt" else ""


def _from_here(path: Path) -> str:
    """A path as code hosts name files: from the working directory on, where it lies below that."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
