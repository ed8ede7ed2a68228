"""The command `penstock import`: a model as an entry of a repository."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.cli.flags.sources import device
from penstock.cli.values import ValueRefused
from penstock.settings import Task

if TYPE_CHECKING:
    from penstock.models.remote.remote_repositories import RemoteRepositories


_MOST = (1 << 31) - 1
"""The largest number that a field of a configuration holds."""
_DIGITS = 20


def parser() -> ArgumentParser:
    """The parser of the command line."""
    made = ArgumentParser(
        "penstock import",
        description="Write a model into a repository, with a configuration that loads.",
    )
    made.add_argument(
        "source", metavar="SOURCE", help="what `penstock serve` takes: a file, a folder, hf://..."
    )
    made.add_argument("repository", metavar="DIR", type=_folder, help="the repository")
    made.add_argument("--name", default="", help="of the model; default: as its file or folder")
    made.add_argument("--task", choices=list(Task), type=Task, help="where its files do not say it")
    made.add_argument("--device", type=_device, help="cpu, gpu or gpu:NUMBER,...")
    made.add_argument("--batching", type=_count, metavar="ROWS", help="batches of at most so many")
    made.add_argument("--instances", type=_count, metavar="COUNT")
    made.add_argument("--version", type=_count, default=1, help="default: %(default)s")
    made.add_argument("--link", action="store_true", help="link large files, do not copy them")
    return made


def run(arguments: Sequence[str]) -> int:
    """Write the entry; the exit status."""
    chosen = parser().parse_args(arguments)
    from penstock.core.errors import InferenceError
    from penstock.models.remote.remote_repositories import RemoteRepositories
    from penstock.models.sources.draft import SourceError, Wishes
    from penstock.models.sources.entry import write_entry
    from penstock.models.sources.recognise import model_of, named

    wishes = Wishes(
        chosen.task, chosen.device or "", chosen.batching, chosen.instances, chosen.version
    )
    name, source = (chosen.name, chosen.source) if chosen.name else named(chosen.source)
    try:
        if chosen.link and "://" in source:
            raise SourceError("--link: what is kept of it here may be removed; it is copied")
        with (
            closing(RemoteRepositories("", 0, os.environ)) as remote,
            _on_the_disk(source, remote) as (path, folder),
        ):
            draft = model_of(path, wishes, name or folder)
            if draft is None:
                raise SourceError(
                    f"'{chosen.source}' is a repository of models, not a model: serve it as it is"
                )
            written = write_entry(draft, wishes, chosen.repository, link=chosen.link)
    except (SourceError, InferenceError, OSError) as error:
        print(f"penstock import: {error}", file=sys.stderr, flush=True)
        return 1
    where = shlex.quote(str(chosen.repository))
    print(f"wrote {written}; serve it with: penstock serve {where}", flush=True)
    return 0


@contextmanager
def _on_the_disk(source: str, remote: RemoteRepositories) -> Iterator[tuple[str, str]]:
    """A source itself; of an object or a folder in a bucket what was fetched, and its name.

    Raises `SourceError` where neither is there, and as `RemoteRepositories.open` does.
    """
    from penstock.models.remote.address import BucketAddress, scheme_of
    from penstock.models.sources.bucket_file import bucket_file
    from penstock.models.sources.draft import SourceError

    if "://" not in source or scheme_of(source) == "hf":
        yield source, ""
        return
    if (file := bucket_file(source, remote)) is not None:
        try:
            yield file.source, file.name
        except SourceError as error:
            raise SourceError(file.told(str(error))) from error
        return
    BucketAddress.parse(source)  # which tells what is wrong with it
    parent, _, folder = source.rstrip("/").rpartition("/")
    taken = None if parent.endswith("/") else remote.open(parent).take(folder)
    if taken is None:
        raise SourceError(f"there is no model at '{source}': no folder, and no file of an engine")
    path, root = taken
    try:
        with suppress(OSError):  # of an entry without versions, one is made; here it is none
            (path / "1").rmdir()
        yield str(path), folder
    except SourceError as error:  # which names the copy
        raise SourceError(str(error).replace(str(path.parent), parent)) from error
    finally:
        if root is not None:
            shutil.rmtree(root, ignore_errors=True)


def _folder(value: str) -> Path:
    if not value:
        raise ArgumentTypeError("a folder, not ''")
    if "://" in value:
        raise ArgumentTypeError(
            f"a folder of this machine, not '{value}'; what is written into one can be uploaded"
        )
    return Path(value)


def _device(value: str) -> str:
    try:
        return device(value)
    except ValueRefused as error:
        raise ArgumentTypeError(str(error)) from None


def _count(value: str) -> int:
    if not (value.isascii() and value.isdecimal()) or int(value[:_DIGITS]) < 1:
        raise ArgumentTypeError(f"a number from 1 on, not '{value}'")
    if len(value) > _DIGITS or int(value) > _MOST:
        raise ArgumentTypeError(f"a number up to {_MOST}, not '{value}'")
    return int(value)
