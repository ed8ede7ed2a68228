"""The command `penstock check`: what of a repository will load, without loading it."""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Sequence
from contextlib import closing
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
from penstock.models.repository.repository import CONFIG_FILE, ModelRepository
from penstock.settings import Settings
from penstock.settings.rules import SettingsError
from penstock.system.cpu_share import cores

_OF_SERVE = (
    "backend-config",
    "backend-directory",
    "model-config-name",
    "repository-cache-byte-size",
    "repository-cache-dir",
)
_SWITCHES = ("cpu-only", "disable-auto-complete-config")
"""Options of `serve` that change what loads."""

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
    chosen = parser().parse_args(arguments)
    try:
        paths, names = _sorted_out(chosen.subjects)
        report = _checked(paths, names, chosen, _settings(paths, chosen))
    except (UsageError, SettingsError, InferenceError, OSError) as error:
        print(f"penstock check: {error}", file=sys.stderr, flush=True)
        return _UNCHECKED
    if text := FORMATS[chosen.format](report, __version__):
        print(text)
    return _FOUND if report.fails(strict=chosen.strict) else 0


def _settings(paths: Sequence[str], chosen: Namespace) -> Settings:
    """The settings of a server of these repositories, with its options that are given."""
    given = vars(chosen)
    options = [f"--model-repository={path}" for path in paths]
    options += [
        f"--{name}={value}" for name in _OF_SERVE for value in given[name.replace("-", "_")]
    ]
    options += [f"--{name}" for name in _SWITCHES if given[name.replace("-", "_")]]
    return parse_arguments(options, os.environ, lambda text: print(text, file=sys.stderr))


def _checked(
    paths: Sequence[str], names: Sequence[str], chosen: Namespace, settings: Settings
) -> Report:
    repository = settings.repository
    visible = visible_gpus() if chosen.gpus is None else list(range(chosen.gpus))
    how = CheckSettings(
        settings.backends.options_for,
        auto_complete=repository.auto_complete_config,
        gpus=() if settings.devices.cpu_only else visible,
        cpu_only=settings.devices.cpu_only,
        other_machine=chosen.gpus is None,
        cores=cores() if chosen.cores is None else chosen.cores,
    )
    cache = RemoteRepositories(repository.cache_dir, repository.cache_size, os.environ)
    with closing(cache) as remote, local_copies(paths, names, remote.open) as copies:
        models = ModelRepository([*copies.roots], repository.config_name)
        check = RepositoryCheck(models, copies.roots, how, copies.unfetched)
        return asyncio.run(check.run(names))


def _sorted_out(subjects: Iterable[str]) -> tuple[list[str], list[str]]:
    """The repositories and the names of models among the arguments."""
    paths: dict[str, None] = {}
    names: dict[str, None] = {}
    for subject in subjects:
        folder = None if "://" in subject else _model_folder(Path(os.path.abspath(subject)))
        if folder is not None:
            paths[_from_here(folder.parent)] = None
            names[folder.name] = None
        elif "/" in subject or os.path.isdir(subject):
            paths[subject] = None
        else:
            names[subject] = None
    if not paths:
        raise UsageError(
            f"there is no repository '{next(iter(names))}'; one is named before models, as a"
            " directory or an address"
        )
    return [*paths], [*names]


def _model_folder(path: Path) -> Path | None:
    """The folder of the model that a path is, or lies in; `None` for a repository, or nothing."""
    places = path.parents if path.is_file() else (path,)
    return next((each for each in places if (each / CONFIG_FILE).is_file()), None)


def _from_here(path: Path) -> str:
    """A path as code hosts name files: from the working directory on, where it lies below that."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
