"""The command `penstock plan`: what models take, before they are loaded."""

from __future__ import annotations

import json
import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.models.sizing.sizes import parsed_size

if TYPE_CHECKING:
    from penstock.models.repository.repository import ModelRepository
    from penstock.models.sizing.cards import Card
    from penstock.models.sizing.estimate import ModelFacts

FITS, TOO_LARGE, FAILED = 0, 1, 2
"""Exit statuses."""


def parser() -> ArgumentParser:
    """The parser of the command line."""
    made = ArgumentParser(
        "penstock plan",
        description="Tell what memory the models of a repository take, and what they fit on.",
        epilog="The exit status is 0 where all of it fits, 1 where it does not, 2 for a mistake.",
    )
    made.add_argument(
        "repository",
        metavar="REPO",
        nargs="?",
        help="a directory, or an address; or the folder of one of its models",
    )
    made.add_argument("models", metavar="MODEL", nargs="*", help="those to count (default: all)")
    there = made.add_mutually_exclusive_group()
    there.add_argument("--device", metavar="CARD[:N]", help="the GPUs that there are: h100:2")
    there.add_argument("--memory", metavar="SIZE", type=_size, help="of the host: 48GiB")
    made.add_argument(
        "--also",
        metavar="NAME=SIZE",
        action="append",
        default=[],
        type=_assumed,
        help="a model that is not there, by its size (600MB) or its parameters and their data type"
        " (70B:fp8); repeatable",
    )
    made.add_argument("--length", type=_count, metavar="TOKENS", help="of the longest sequence")
    made.add_argument("--concurrency", type=_count, metavar="N", help="sequences at once")
    made.add_argument("--format", choices=["text", "json"], default="text")
    made.add_argument("--model-config-name", metavar="NAME", default="")
    made.add_argument("--repository-cache-dir", metavar="DIR", default="")
    return made


def run(arguments: Sequence[str]) -> int:
    """Print the plan; the exit status."""
    reader = parser()
    chosen = reader.parse_intermixed_args(arguments)
    if chosen.repository is None and not chosen.also:
        reader.error("name a repository, or models with --also")
    from penstock.core.errors import InferenceError
    from penstock.models.sizing.report import Report, escaped

    try:
        card, number = _device(chosen.device)
        found = _Found([], {})
        if chosen.repository is not None:
            found = _read(chosen)
        facts = [_as_wished(each, chosen) for each in found.facts]
        facts += map(_assumed_facts, chosen.also)
        report = Report.of(facts, found.problems, card, number, chosen.memory or 0)
    except (InferenceError, OSError) as error:
        print(escaped(f"penstock plan: {error}"), file=sys.stderr, flush=True)
        return FAILED
    print(json.dumps(report.as_json(), indent=2) if chosen.format == "json" else report.as_text())
    if found.problems:
        return FAILED
    return FITS if report.fits else TOO_LARGE


# -- what is asked for -------------------------------------------------------------------------


def _size(text: str) -> int:
    size = parsed_size(text)
    if size is None:
        raise ArgumentTypeError(f"'{text}' is no size: write bytes, or like 48GiB or 80GB")
    return size


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 1 << 31):
        raise ArgumentTypeError(f"'{text}' is no number above 0")
    return int(text)


def _assumed(text: str) -> tuple[str, str, int]:
    """Name, data type and bytes of a model that is not there."""
    from penstock.models.sizing.kv_cache import known_width

    name, _, size = text.partition("=")
    counted = re.fullmatch(
        r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([BM])(?::([A-Za-z][A-Za-z0-9_]*))?", size
    )
    if name and counted is not None and counted[3]:
        width = known_width(counted[3])
        if width is None:
            raise ArgumentTypeError(
                f"'{counted[3]}' is no data type that is known: write like 8B:fp16, 8B:fp8 or"
                " 8B:int4, or the size of the file"
            )
        unit = 10**9 if counted[2] == "B" else 10**6
        return name, counted[3].upper(), int(float(counted[1]) * unit * width)
    if name and counted is None and (given := parsed_size(size)) is not None:
        return name, "as given", given
    raise ArgumentTypeError(f"'{text}' is not like NAME=600MB or NAME=70B:fp8")


def _device(text: str | None) -> tuple[Card | None, int]:
    from penstock.core.errors import InvalidRequestError
    from penstock.models.sizing.cards import find_card

    if text is None:
        return None, 0
    name, _, number = text.partition(":")
    if number and not (number.isascii() and number.isdecimal() and 1 <= int(number) <= 64):
        raise InvalidRequestError(f"--device is CARD or CARD:NUMBER, such as h100:2, got '{text}'")
    return find_card(name), int(number or 1)


# -- what there is -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Found:
    """Models that could be read, and why others could not."""

    facts: list[ModelFacts]
    problems: dict[str, str]


def _read(chosen: Namespace) -> _Found:
    from penstock.models.remote.remote_repositories import RemoteRepositories
    from penstock.models.repository.repository import CONFIG_FILE, ModelRepository

    place, models = chosen.repository, chosen.models
    if os.path.isfile(os.path.join(place, CONFIG_FILE)):  # the folder of a model
        place, model = os.path.split(os.path.abspath(place))
        models = [model, *models]
    with closing(RemoteRepositories(chosen.repository_cache_dir, 0, os.environ)) as remote:
        return _found(ModelRepository([place], chosen.model_config_name, remote.open), models)


def _found(repository: ModelRepository, wanted: Sequence[str]) -> _Found:
    """The models that are wanted, or all, with those that their ensembles need."""
    from penstock.core.errors import InferenceError
    from penstock.models.loading.dependencies import needs_of
    from penstock.models.repository.load_log import kept_warnings, logged_reason

    facts: list[ModelFacts] = []
    problems: dict[str, str] = {}
    todo, seen = list(wanted or repository.names()), set[str]()
    while todo:
        name = todo.pop(0)
        if name in seen:
            continue
        seen.add(name)
        try:
            with kept_warnings() as logged:
                for one in _facts_of(repository, name):
                    facts.append(one)
                    todo += sorted(needs_of(one.config))
        except InferenceError as error:
            problems[name] = logged_reason(error, name, logged).message
        except OSError as error:
            problems[name] = str(error)
    return _Found(facts, problems)


def _facts_of(repository: ModelRepository, name: str) -> Iterator[ModelFacts]:
    from penstock.models.repository.repository import versions_to_load
    from penstock.models.sizing.estimate import ModelFacts

    files = repository.read(name)
    try:
        for version, path in versions_to_load(files, files.config.version_policy).items():
            yield ModelFacts.read(files.config, version, path)
    finally:
        if files.folder is not None:
            files.folder.remove()


def _as_wished(facts: ModelFacts, chosen: Namespace) -> ModelFacts:
    """The model with the length and the concurrency that are asked for."""
    settings = facts.settings
    settings = replace(
        settings,
        length=chosen.length or settings.length,
        sequences=chosen.concurrency or settings.sequences,
    )
    return replace(facts, settings=settings)


def _assumed_facts(given: tuple[str, str, int]) -> ModelFacts:
    from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig
    from penstock.models.sizing.estimate import ASSUMED, ModelFacts

    name, dtype, size = given
    group = InstanceGroup(kind=InstanceKind.KIND_MODEL, count=1)
    config = ModelConfig(name=name, backend=ASSUMED, instance_group=(group,))
    return ModelFacts(config, weights={dtype: size})
