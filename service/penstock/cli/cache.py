"""The commands `penstock pull`, `list` and `remove`: what was fetched from elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import InferenceError
from penstock.models.sizing.sizes import shown_size

if TYPE_CHECKING:
    from penstock.models.remote.remote_repositories import RemoteRepositories
    from penstock.models.repository.places import RemotePlace


def pull_parser() -> ArgumentParser:
    """The parser of `penstock pull`."""
    made = _parser("pull", "Fetch models from an address, so that `serve` starts with them here.")
    made.add_argument("address", metavar="ADDRESS", help="as --model-repository or serve take it")
    made.add_argument(
        "models", metavar="MODEL", nargs="*", help="of a repository; or files of the hub"
    )
    made.add_argument("--repository-cache-byte-size", type=_bytes, default=0, metavar="BYTES")
    return made


def list_parser() -> ArgumentParser:
    """The parser of `penstock list`."""
    return _parser("list", "List what was fetched from addresses, with size and last use.")


def remove_parser() -> ArgumentParser:
    """The parser of `penstock remove`."""
    made = _parser(
        "remove", "Remove what was fetched from addresses; unload models of the hub first."
    )
    made.add_argument("addresses", metavar="ADDRESS", nargs="+", help="as `penstock list` has it")
    return made


def _parser(name: str, description: str) -> ArgumentParser:
    made = ArgumentParser(f"penstock {name}", description=description)
    made.add_argument("--repository-cache-dir", default="", metavar="DIR", help="as of `serve`")
    return made


def pull(arguments: Sequence[str]) -> int:
    """Fetch models; the exit status."""
    return _run(_pull, pull_parser().parse_intermixed_args(arguments))


def listed(arguments: Sequence[str]) -> int:
    """Print what was fetched; the exit status."""
    return _run(_list, list_parser().parse_args(arguments))


def remove(arguments: Sequence[str]) -> int:
    """Remove what was fetched; the exit status."""
    return _run(_remove, remove_parser().parse_intermixed_args(arguments))


def _run(work: Callable[[RemoteRepositories, Namespace], int], chosen: Namespace) -> int:
    from penstock.models.remote.remote_repositories import RemoteRepositories

    limit = getattr(chosen, "repository_cache_byte_size", 0)
    try:
        with closing(RemoteRepositories(chosen.repository_cache_dir, limit, os.environ)) as remote:
            return work(remote, chosen)
    except (InferenceError, OSError) as error:
        return _failed(str(error))


def _failed(problem: str) -> int:
    print(f"penstock: {problem}", file=sys.stderr, flush=True)
    return 1


def _pull(remote: RemoteRepositories, chosen: Namespace) -> int:
    from penstock.models.remote.address import scheme_of
    from penstock.models.sources.bucket_file import bucket_file
    from penstock.models.sources.draft import SourceError, Wishes
    from penstock.models.sources.recognise import model_of

    scheme = scheme_of(chosen.address)
    if not scheme:
        return _failed(f"'{chosen.address}' is a folder of this machine")
    if scheme == "hf" and (folder := _pulled_files(chosen.address, chosen.models)):
        print(folder)
        return 0
    try:
        if scheme and not chosen.models and (file := bucket_file(chosen.address, remote)):
            sizes = [each.stat().st_size for each in Path(file.source).parent.iterdir()]
            print(f"{chosen.address}: {shown_size(sum(sizes))}")
            return 0
        draft = None if chosen.models else model_of(chosen.address, Wishes())
    except SourceError as error:
        return _failed(str(error))
    if draft is not None:
        print(
            f"{chosen.address}: {shown_size(sum(p.stat().st_size for p in draft.links.values()))}"
        )
        return 0
    return _pull_models(remote, chosen)


def _pulled_files(address: str, names: Sequence[str]) -> Path | None:
    """The folder with these files of the hub; `None` if some are none."""
    from penstock.models.remote.hub_repository import HubAddress, HubRepository

    repository = HubRepository(HubAddress.parse(address))
    commit, there = repository.listing()
    return repository.fetch(commit, names) if names and {*names} <= {*there} else None


def _pull_models(remote: RemoteRepositories, chosen: Namespace) -> int:
    """Fetch models; one that cannot be fetched keeps no other from it."""
    place = remote.open(chosen.address)
    statuses = [_pull_model(place, chosen.address, n) for n in chosen.models or place.folders()]
    return max(statuses, default=0)


def _pull_model(place: RemotePlace, address: str, name: str) -> int:
    try:
        taken = place.take(name)
    except (InferenceError, OSError) as error:
        return _failed(f"model '{name}' is not fetched: {error}")
    if taken is None:
        return _failed(f"there is no model '{name}' in '{address}'")
    path, temporary = taken
    size = sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    print(f"{address.rstrip('/')}/{name}: {shown_size(size)}", flush=True)
    if temporary is not None:
        shutil.rmtree(temporary)
    return 0


def _list(remote: RemoteRepositories, chosen: Namespace) -> int:
    rows = [(address, *entry) for address, entry in sorted(_kept(remote).items())]
    if not rows:
        folder = chosen.repository_cache_dir
        if folder and not os.path.isdir(folder):
            return _failed(f"there is no folder '{folder}'")
        print("penstock: nothing was fetched yet", file=sys.stderr, flush=True)
    width = max([len(address) for address, *_ in rows], default=0)
    for address, size, used in rows:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(used))
        print(f"{address:{width}}  {shown_size(size):>10}  {when}")
    return 0


def _kept(remote: RemoteRepositories) -> Mapping[str, tuple[int, float]]:
    """Bytes and last use of what was fetched, by the addresses of models."""
    from penstock.models.remote.hub_repository import kept_models

    found: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for address, size, used in _objects(remote):
        before, last = found[address]
        found[address] = before + size, max(last, used)
    return {**found, **{each.address: (each.size, each.used) for each in kept_models()}}


def _objects(remote: RemoteRepositories) -> Iterator[tuple[str, int, float]]:
    for cache in remote.caches():
        for each in cache.objects():
            yield each.model, each.size, each.used


def _remove(remote: RemoteRepositories, chosen: Namespace) -> int:
    from penstock.models.remote.hub_repository import forget_models, kept_models

    status = 0
    for address in chosen.addresses:
        wanted = address.rstrip("/")
        gone = 0
        for cache in remote.caches():
            inside = [e for e in cache.objects() if f"{e.model}/".startswith(f"{wanted}/")]
            cache.forget(inside)
            gone += sum(each.size for each in inside)
        models = [each for each in kept_models() if each.address == wanted]
        if models:
            forget_models(models)
            gone += sum(each.size for each in models)
        if not gone:
            text = f"nothing was fetched from '{address}'; `penstock list` shows what was"
            status = _failed(text)
            continue
        print(f"{address}: {shown_size(gone)} removed", flush=True)
    return status


def _bytes(value: str) -> int:
    if not (value.isascii() and value.isdecimal()):
        raise ArgumentTypeError(f"a number of bytes, not '{value}'")
    return int(value)
