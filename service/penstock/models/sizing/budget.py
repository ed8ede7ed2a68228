"""`MemoryBudget`: the account of the memory that models may take, as they are estimated."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Final

from penstock.core.config import LatestVersions
from penstock.core.errors import UnavailableError
from penstock.models.sizing.estimate import (
    ModelEstimate,
    ModelFacts,
    Place,
    estimate,
    with_headroom,
)
from penstock.models.sizing.plan import changes
from penstock.models.sizing.sizes import shown_size

logger = logging.getLogger(__name__)

_MOST_NAMED = 3
"""Models and changes that a refusal names."""

TOGETHER: Final = ""
"""The one limit of a budget that is not by device: of the GPUs, or of the host without any."""

_NOTED = 1.05
"""By how much more than was counted a model must take before that is a line of the log."""

Sizes = Counter[str]
"""Bytes by device, `host`, `gpu0` and so on; or by limit."""


class Claim:
    """What a version of a model has of a budget, until it is released.

    `expected` is what it was estimated to need, which may differ from what it has: that may have
    been measured. As a context, it is released where what is done in it fails.
    """

    def __init__(
        self, budget: MemoryBudget, name: str, version: int, sizes: Sizes, expected: Sizes
    ) -> None:
        self._budget = budget
        self.name = name
        self.version = version
        self.sizes = sizes
        self.expected = expected
        self.stamp = ""
        self.measured = False

    @property
    def size(self) -> int:
        """Bytes on all devices."""
        return self.sizes.total()

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            self.release()

    def release(self) -> None:
        """Give all of it back; a second call does nothing."""
        self._budget.shrink(self, self.sizes.copy())
        self.expected = Sizes()

    def absorb(self, other: Claim) -> None:
        """Take over what another claim has."""
        self.sizes += other.sizes
        self.expected += other.expected
        other.sizes, other.expected = Sizes(), Sizes()

    def split(self, sizes: Mapping[str, int]) -> Claim:
        """Hand over a part, to a claim of its own."""
        part = self.sizes & Sizes(sizes)
        self.sizes -= part
        self.expected -= part
        return Claim(self._budget, self.name, self.version, part, part.copy())


class MemoryBudget:
    """Bytes that all models may take together, and what is left of them.

    A `limit` in bytes holds for all that is counted; one by device for what is on each. `refused`
    are the bytes that models needed in all when they found no room last, by device. `tells_names`
    says whether errors may name other models: where an access policy is on, not every caller may
    know of them. `remembered` tells what was measured of a model of a stamp, if anything was.

    Lives on the event loop. Counted is what a model takes of the GPUs that it runs on, or of the
    host, and by device what it takes of each, with headroom; not the server's own process.
    """

    def __init__(
        self,
        limit: int | Mapping[str, int],
        gpus: tuple[int, ...] = (),
        card: int = 0,
        *,
        tells_names: bool = True,
        remembered: Callable[[str], Mapping[str, int] | None] = lambda _: None,
    ) -> None:
        self.tells_names = tells_names
        self._limits = {TOGETHER: limit} if isinstance(limit, int) else dict(limit)
        self._place = Place(gpus, card)
        self._held: dict[tuple[str, int], Sizes] = {}
        self._remembered = remembered
        self.refused: dict[str, Sizes] = {}

    @property
    def used(self) -> int:
        """Bytes that models have now, on all devices."""
        return sum(sizes.total() for sizes in self._held.values())

    def left(self) -> Sizes:
        """Bytes that no model has, by limit; below 0 where models take more than was known."""
        left = Sizes(self._limits)
        for sizes in self._held.values():
            left.subtract(self.limited(sizes))
        return left

    def limited(self, sizes: Mapping[str, int]) -> Sizes:
        """Bytes by limit of what is on devices."""
        if TOGETHER in self._limits:
            return +Sizes({TOGETHER: sum(sizes.values())})
        return Sizes({device: sizes[device] for device in self._limits if sizes.get(device)})

    def shown(self, missing: Mapping[str, int]) -> str:
        """Bytes by limit, for people: `1.5 GiB`, or `1.5 GiB on gpu0`."""
        return " and ".join(
            shown_size(size) + (f" on {limit}" if limit else "") for limit, size in missing.items()
        )

    @property
    def gpus(self) -> tuple[int, ...]:
        """The GPUs whose memory is counted."""
        return self._place.gpus

    def needed(self, versions: Iterable[ModelFacts]) -> Sizes:
        """What versions of models need together, by device: as measured once, else estimated."""
        needed = Sizes()
        for facts in versions:
            needed += self._counted(facts, self._expected(estimate(facts, self._place)))
        return needed

    def by_model(self) -> Counter[str]:
        """Bytes that each model has now, all of its versions and devices together."""
        return Counter({name: sizes.total() for name, sizes in self.by_device().items()})

    def by_device(self) -> dict[str, Sizes]:
        """Bytes that each model has now on each device, all of its versions together."""
        models: dict[str, Sizes] = {}
        for (name, _), sizes in self._held.items():
            models[name] = models.get(name, Sizes()) + sizes
        return models

    def claim(self, facts: ModelFacts) -> Claim:
        """Take what a model needs. Raises `UnavailableError` where it is not left."""
        found = estimate(facts, self._place)
        expected = self._expected(found)
        counted = self._counted(facts, expected)
        claim = self._taken(found, counted, expected)
        claim.stamp, claim.measured = facts.stamp, counted is not expected
        return claim

    def adjust(self, claim: Claim, facts: ModelFacts) -> None:
        """Count what a completed configuration needs; raises as `claim` does.

        What was measured of this model before had the complete configuration.
        """
        if claim.measured:
            claim.expected = self._expected(estimate(facts, self._place))
            return
        growth = self.grown(claim, facts)
        if growth is not None:
            claim.absorb(growth)
        claim.split(self.surplus(claim, facts)).release()

    def grown(self, claim: Claim, facts: ModelFacts) -> Claim | None:
        """Take what a model needs more than was expected; `None` if it needs no more.

        Raises as `claim` does.
        """
        found = estimate(facts, self._place)
        more = self._expected(found) - claim.expected
        return self._taken(found, more, more, growth=True) if more else None

    def surplus(self, claim: Claim, facts: ModelFacts) -> Sizes:
        """What was expected of a model more than it needs."""
        return claim.expected - self._expected(estimate(facts, self._place))

    def correct(self, claim: Claim, measured: Mapping[str, int]) -> None:
        """Count what a model was found to take, with headroom, on the devices that were measured.

        That may be more than is left: others are to go then, see `excess`.
        """
        held = self._held.get((claim.name, claim.version))
        if held is None or not claim.sizes:  # it has been released since
            return
        for device, size in measured.items():
            if device not in claim.sizes:
                continue
            new, old = with_headroom(size), claim.sizes[device]
            if new > old * _NOTED:
                logger.info(
                    "'%s' version %d takes %s of %s, more than the %s that were counted",
                    *(claim.name, claim.version, shown_size(new), device, shown_size(old)),
                )
            held[device] += new - old
            claim.sizes[device] = new
        claim.measured = True

    def lacking(self, sizes: Mapping[str, int]) -> Sizes:
        """Bytes by limit of what is to be taken of devices and is not left there."""
        left = self.left()
        return +Sizes({d: size - left[d] for d, size in self.limited(sizes).items()})

    def excess(self) -> Sizes:
        """Bytes that models have more than they may, by limit."""
        return Sizes() - self.left()

    def shrink(self, claim: Claim, sizes: Mapping[str, int]) -> None:
        """Give a part of a claim back."""
        part = claim.sizes & Sizes(sizes)
        claim.sizes -= part
        held = claim.name, claim.version
        left = self._held.get(held, Sizes()) - part
        self._held[held] = left
        if not left:
            del self._held[held]

    def _expected(self, found: ModelEstimate) -> Sizes:
        """What a model is estimated to need, by device: on those that count."""
        devices = found.devices if TOGETHER in self._limits else found.parts
        return Sizes({device: found.parts[device].planned for device in devices})

    def _counted(self, facts: ModelFacts, expected: Sizes) -> Sizes:
        """What was measured of a model, with headroom; where nothing was, what is `expected`."""
        measured = self._remembered(facts.stamp) if facts.stamp else None
        if measured is None:
            return expected
        return Sizes({d: with_headroom(measured[d]) if d in measured else n
                      for d, n in expected.items()})  # fmt: skip

    def _taken(
        self, found: ModelEstimate, sizes: Sizes, expected: Sizes, *, growth: bool = False
    ) -> Claim:
        name, version = found.facts.name, found.facts.version
        if lacking := self.lacking(sizes):
            needed = self._expected(found) if growth else sizes
            self.refused[name] = self._of_other_versions(name, version) + needed
            raise UnavailableError(self._refusal(found, sizes, lacking, growth))
        self._held[name, version] = self._held.get((name, version), Sizes()) + sizes
        logger.info(
            "'%s' version %d takes %s of the memory budget, of which %s are left",
            *(name, version, self.shown(self.limited(sizes)) or "nothing", self.shown(self.left())),
        )
        return Claim(self, name, version, sizes.copy(), expected.copy())

    def _of_other_versions(self, name: str, version: int) -> Sizes:
        found = Sizes()
        for (other, number), sizes in self._held.items():
            if other == name and number != version:
                found += sizes
        return found

    def _refusal(self, found: ModelEstimate, sizes: Sizes, lacking: Sizes, growth: bool) -> str:
        [(limit, missing)] = lacking.most_common(1)
        size, left = self.limited(sizes)[limit], self.left()[limit]
        on = f" on {limit}" if limit else ""
        ways = [] if growth else self._of_itself(found.facts)
        ways = ways or self._unloads(found.facts.name, limit, missing)
        ways += [
            f"{change.what} (saves {shown_size(change.saved)})"
            for change in changes(found.facts, self._place, missing)[:_MOST_NAMED]
        ]
        ways.append("a larger --memory-budget")
        return (
            f"model '{found.facts.name}' needs {shown_size(size)} of memory{on}"
            f"{' more than it has' if growth else ''}, and of the"
            f" --memory-budget of {shown_size(self._limits[limit])}{on}"
            f" there are {shown_size(max(left, 0))} left;"
            f" what helps: {', or '.join(ways)}; 'penstock plan' shows the parts"
        )

    def _of_itself(self, facts: ModelFacts) -> list[str]:
        """What helps where the model is there already, in this version or in another."""
        name = facts.name
        if (name, facts.version) in self._held:
            return [f"unload '{name}' first, so that it is not there twice"]
        others = sorted(version for held, version in self._held if held == name)
        if not others:
            return []
        policy = facts.config.version_policy
        if policy is None or policy.latest == LatestVersions(
            1
        ):  # which this one takes the place of
            return [f"unload '{name}' first, so that version {others[-1]} is not there beside it"]
        return [f"a version_policy of '{name}' with fewer versions"]

    def _unloads(self, name: str, limit: str, missing: int) -> list[str]:
        """Advice to unload: the smallest other model that is enough, else the largest."""
        if not self.tells_names:
            return ["unload others"]
        held = ((self.limited(one)[limit], other) for other, one in self.by_device().items())
        others = sorted((size, other) for size, other in held if size and other != name)
        enough = [pair for pair in others if pair[0] >= missing] or others[-1:]
        return [f"unload '{other}' ({shown_size(size)})" for size, other in enough[:1]]
