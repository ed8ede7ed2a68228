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
from typing import TYPE_CHECKING, Any

from penstock.models.sizing.sizes import parsed_size, shown_size

if TYPE_CHECKING:
    from penstock.models.repository.repository import ModelRepository
    from penstock.models.sizing.cards import Card
    from penstock.models.sizing.estimate import ModelEstimate, ModelFacts, Parts
    from penstock.models.sizing.plan import Plan

FITS, TOO_LARGE, FAILED = 0, 1, 2
"""Exit statuses."""

_MOST_CHANGES = 6


def parser() -> ArgumentParser:
    """The parser of the command line."""
    made = ArgumentParser(
        "penstock plan",
        description="Tell what memory the models of a repository take, and what they fit on.",
        epilog="The exit status is 0 where all of it fits, 1 where it does not, 2 for a mistake.",
    )
    made.add_argument("repository", metavar="REPO", nargs="?", help="a directory, or an address")
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
    chosen = reader.parse_args(arguments)
    if chosen.repository is None and not chosen.also:
        reader.error("name a repository, or models with --also")
    from penstock.core.errors import InferenceError

    try:
        card, number = _device(chosen.device)
        found = _Found([], {})
        if chosen.repository is not None:
            found = _read(chosen)
        facts = [*map(_with_wishes(chosen), found.facts), *map(_assumed_facts, chosen.also)]
        report = _Report.of(facts, found.problems, card, number, chosen.memory or 0)
    except (InferenceError, OSError) as error:
        print(f"penstock plan: {error}", file=sys.stderr, flush=True)
        return FAILED
    print(json.dumps(report.as_json(), indent=2) if chosen.format == "json" else report.as_text())
    return report.status


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
    from penstock.models.sizing.kv_cache import width_of

    name, _, size = text.partition("=")
    counted = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,6})?)([BM])(?::([A-Za-z][A-Za-z0-9_]*))?", size)
    if name and counted is not None and counted[3]:
        unit = 10**9 if counted[2] == "B" else 10**6
        return name, counted[3].upper(), int(float(counted[1]) * unit * width_of(counted[3]))
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
    from penstock.models.repository.repository import ModelRepository

    with closing(RemoteRepositories(chosen.repository_cache_dir, 0, os.environ)) as remote:
        paths, name = [chosen.repository], chosen.model_config_name
        return _found(ModelRepository(paths, name, remote.open), chosen.models)


def _found(repository: ModelRepository, wanted: Sequence[str]) -> _Found:
    """The models that are wanted, or all, with those that their ensembles need."""
    from penstock.core.errors import InferenceError
    from penstock.models.loading.dependencies import needs_of

    facts, problems = list[Any](), dict[str, str]()
    todo, seen = list(wanted or repository.names()), set[str]()
    while todo:
        name = todo.pop(0)
        if name in seen:
            continue
        seen.add(name)
        try:
            for one in _facts_of(repository, name):
                facts.append(one)
                todo += sorted(needs_of(one.config))
        except InferenceError as error:
            problems[name] = error.message
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


def _with_wishes(chosen: Namespace) -> Any:
    """A function that puts the length and the concurrency asked for into a model."""

    def changed(facts: ModelFacts) -> ModelFacts:
        settings = facts.settings
        if chosen.length or chosen.concurrency:
            settings = replace(
                settings,
                length=chosen.length or settings.length,
                sequences=chosen.concurrency or settings.sequences,
            )
        return replace(facts, settings=settings)

    return changed


def _assumed_facts(given: tuple[str, str, int]) -> ModelFacts:
    from penstock.core.config import InstanceGroup, InstanceKind, ModelConfig
    from penstock.models.sizing.estimate import ASSUMED, ModelFacts

    name, dtype, size = given
    group = InstanceGroup(kind=InstanceKind.KIND_MODEL, count=1)
    config = ModelConfig(name=name, backend=ASSUMED, instance_group=(group,))
    return ModelFacts(config, weights={dtype: size})


# -- what is said ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Report:
    """A plan with what it is held against: cards of a kind, bytes of the host, or nothing."""

    facts: Sequence[ModelFacts]
    plan: Plan
    problems: dict[str, str]
    card: Card | None
    limit: int

    @classmethod
    def of(
        cls,
        facts: Sequence[ModelFacts],
        problems: dict[str, str],
        card: Card | None,
        number: int,
        memory: int,
    ) -> _Report:
        from penstock.models.sizing.estimate import Place
        from penstock.models.sizing.plan import Plan

        place = Place() if card is None else Place(tuple(range(number)), card.usable)
        return cls(
            facts, Plan.of(facts, place), problems, card, memory if card is None else card.usable
        )

    @property
    def fits(self) -> bool:
        """Whether it fits what there is; also where nothing was named."""
        if self.card is not None:
            return self.plan.fits(self.card)
        return not self.limit or not self.plan.excess(self.limit)

    @property
    def status(self) -> int:
        if self.problems:
            return FAILED
        return FITS if self.fits else TOO_LARGE

    def as_json(self) -> dict[str, Any]:
        from penstock.models.sizing.plan import fitting_cards

        plan = self.plan
        return {
            "models": [_model_json(model) for model in plan.models],
            "server": {device: _parts_json(parts) for device, parts in plan.server.items()},
            "devices": {
                device: {"needed": plan.needed(device), "planned": plan.planned(device)}
                for device in plan.devices
            },
            "limit": self.limit or None,
            "fits": self.fits,
            "cards": {card.key: number for card, number in fitting_cards(self.facts)},
            "changes": [] if self.fits else self._changes_json(),
            "problems": self.problems,
        }

    def as_text(self) -> str:
        lines = [*_table(self.plan), "", *self._sums(), *self._verdict(), *self._cards()]
        notes = [
            f"note: '{model.facts.name}': {note}"
            for model in self.plan.models
            for note in model.notes
        ]
        failed = [f"cannot be read: '{name}': {text}" for name, text in self.problems.items()]
        return "\n".join([*lines, *notes, *failed])

    def _sums(self) -> Iterator[str]:
        for device in self.plan.devices:
            planned = self.plan.planned(device)
            if not planned:
                continue
            needed = self.plan.needed(device)
            how = f"{shown_size(needed)} and 15 % headroom"
            if any(parts.reserved for parts in self.plan.on(device)):
                how = f"{shown_size(needed)} needed; engines take a fraction of the card"
            yield f"{device}: {shown_size(planned)} ({how})"

    def _verdict(self) -> Iterator[str]:
        from penstock.models.sizing.plan import fewest

        if not self.limit:
            return
        place = self.card.name if self.card is not None else "the memory of the host"
        if self.fits:
            yield f"fits {place}, of which programs may use {shown_size(self.limit)}"
            return
        yield f"does not fit {place}, of which programs may use {shown_size(self.limit)}:"
        yield from (f"  {reason}" for reason in self._reasons())
        yield "what would help:"
        yield from (
            f"  '{change.facts.name}': {change.what}, saves {shown_size(change.saved)}"
            for change in self._changes()
        )
        number = fewest(self.facts, self.card) if self.card is not None else 0
        if number > len(self.plan.place.gpus):
            yield f"  {number} cards, with language models split over them (tensor_parallel_size)"
        yield "  fewer models, or a larger place"

    def _reasons(self) -> Iterator[str]:
        from penstock.models.sizing.plan import LARGE, LARGE_CARD

        for device, size in self.plan.excess(self.limit).items():
            yield f"{device}: {shown_size(size)} too much"
        for model in self.plan.unsplit():
            wanted = model.facts.settings.parallel
            yield f"'{model.facts.name}' is to be split over {wanted} GPUs"
        if self.card is not None and self.card.gigabytes < LARGE_CARD:
            for device in self.plan.devices[:-1]:
                name, size = self.plan.largest(device)
                if size > LARGE:
                    yield f"'{name}' has more than 40 GB, and wants a card of {LARGE_CARD} GB"

    def _changes(self) -> Sequence[Any]:
        from penstock.models.sizing.plan import suggestions

        most = max(self.plan.excess(self.limit).values(), default=0)
        return suggestions(self.facts, self.plan.place, most)[:_MOST_CHANGES]

    def _changes_json(self) -> list[dict[str, Any]]:
        return [
            {"model": change.facts.name, "change": change.what, "saves": change.saved}
            for change in self._changes()
        ]

    def _cards(self) -> Iterator[str]:
        from penstock.models.sizing.plan import fitting_cards

        found = fitting_cards(self.facts)
        if not found:
            yield "cards: it fits none, nor eight of them"
        for number in sorted({number for _, number in found}):
            names = ", ".join(card.key for card, fewest in reversed(found) if fewest == number)
            yield f"cards: {names}" if number == 1 else f"cards, {number} of them: {names}"


def _table(plan: Plan) -> list[str]:
    head = ("model", "device", "instances", "weights", "KV cache", "activations", "runtime", "sum")
    rows: list[tuple[str, ...]] = [head]
    for model in plan.models:
        name = f"{model.facts.name}:{model.facts.version}"
        for device, parts in model.parts.items():
            if parts.total or device in model.devices:
                rows.append((name, device, str(model.instances), *_cells(parts)))
        if not model.parts:
            rows.append((name, *("-",) * 7))
    for device, parts in plan.server.items():
        if parts.total:
            rows.append(("(server)", device, "", *_cells(parts)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _cells(parts: Parts) -> tuple[str, ...]:
    heaviest = sorted(parts.weights.items(), key=lambda pair: -pair[1])
    weights = " + ".join(f"{shown_size(size)} {dtype}" for dtype, size in heaviest[:3])
    others = sum(size for _, size in heaviest[3:])
    weights += f" + {shown_size(others)} of others" if others else ""
    sizes = (parts.kv_cache, parts.activations, parts.runtime, parts.total)
    return (weights or "-", *(shown_size(size) if size else "-" for size in sizes))


def _parts_json(parts: Parts) -> dict[str, Any]:
    return {
        "weights": dict(parts.weights),
        "kv_cache": parts.kv_cache,
        "activations": parts.activations,
        "runtime": parts.runtime,
        "reserved": parts.reserved,
        "sum": parts.total,
        "planned": parts.planned,
    }


def _model_json(model: ModelEstimate) -> dict[str, Any]:
    facts = model.facts
    return {
        "name": facts.name,
        "version": facts.version,
        "backend": facts.config.backend,
        "instances": model.instances,
        "devices": {device: _parts_json(parts) for device, parts in model.parts.items()},
        "notes": list(model.notes),
    }
