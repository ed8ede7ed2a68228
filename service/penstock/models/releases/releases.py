"""`Releases`: the aliases of a server, who owns their traffic, and why it went back."""

from __future__ import annotations

import asyncio
import logging
import time
import tomllib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import random
from typing import Any

from penstock.core.config import ModelConfig
from penstock.core.errors import (
    AlreadyExistsError,
    InferenceError,
    InvalidRequestError,
    NotFoundError,
    UnavailableError,
)
from penstock.core.request import ANY_VERSION, InferenceRequest, InferenceResponse
from penstock.core.stream import ResponseStream
from penstock.inflight.statistics import FailureReason
from penstock.models.releases.alias import Alias, AliasTarget, Guard
from penstock.models.repository.repository import check_name
from penstock.models.serving.catalog import ModelCatalog
from penstock.models.serving.served_model import ServedModel
from penstock.system.file_state import FileState, file_state

logger = logging.getLogger(__name__)

ALIASES_FILE = "aliases.toml"
"""The file of a repository that declares aliases, each a table of its own."""

TARGET = "penstock_target"
"""The parameter of an answer that names the target."""

_MOST_SEQUENCES = 100_000
"""Sequences of an alias whose targets are remembered; beyond, those that began first are not."""
_MOST_HISTORY = 100
_MOST_GONE = 100
"""Aliases that are gone and whose changes are still told; beyond, those that were made first."""
_LOOK_SECONDS = 1.0

Find = Callable[[str, int], ServedModel]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of an alias: seconds since the epoch, what it is now, and why."""

    at: float
    alias: Alias | None
    why: str


@dataclass(frozen=True, slots=True)
class _Count:
    """Requests of a target so far, and those that failed, at a time of the clock."""

    at: float
    requests: int
    failed: int


class AliasModel:
    """The models behind an alias, for frontends: each request goes to one of them."""

    def __init__(self, alias: Alias, find: Find) -> None:
        self.alias = alias
        self._find = find
        self._sequences: dict[int | str, AliasTarget] = {}
        self._missed: set[AliasTarget] = set()

    @property
    def config(self) -> ModelConfig:
        """The configuration of the target with the most weight."""
        target = self.main()
        return self._find(target.model, target.version).config

    @property
    def decoupled(self) -> bool:
        target = self.main()
        return self._find(target.model, target.version).decoupled

    def main(self) -> AliasTarget:
        """The target with the most weight that serves; raises where none does."""
        for one in sorted(self.alias.targets, key=lambda one: -one.weight):
            if self._serves(one):
                return one
        raise self._nothing()

    def infer(self, request: InferenceRequest) -> ResponseStream:
        target = self._target(request)
        stream = self._find(target.model, target.version).infer(request)
        name = target.text

        def named(response: InferenceResponse) -> InferenceResponse:
            return replace(response, parameters={**response.parameters, TARGET: name})

        stream.add_transform(named)
        return stream

    def exchange(self, request: InferenceRequest) -> ResponseStream:
        target = self._target(request)
        return self._find(target.model, target.version).exchange(request)

    def _target(self, request: InferenceRequest) -> AliasTarget:
        """The target of a request; a sequence stays with its own until it ends."""
        sequence = request.correlation_id
        kept = self._sequences.get(sequence) if sequence else None
        if kept is not None and not request.sequence_start:
            if request.sequence_end:
                del self._sequences[sequence]
            return kept
        place = self.alias.place(request)
        target = self.alias.drawn(random() if place is None else place, self._serves)
        if target is None:
            raise self._nothing()
        if sequence and not request.sequence_end:
            if len(self._sequences) >= _MOST_SEQUENCES:
                del self._sequences[next(iter(self._sequences))]
            self._sequences[sequence] = target
        return target

    def follow(self, alias: Alias) -> None:
        """Draw from other shares from now on; sequences stay where they are."""
        self.alias = alias
        self._missed.clear()

    def _serves(self, target: AliasTarget) -> bool:
        try:
            self._find(target.model, target.version)
        except InferenceError as error:
            if target not in self._missed and target.weight > 0:
                self._missed.add(target)
                logger.warning(
                    "alias '%s': '%s' does not serve (%s): its share goes to the others",
                    self.alias.name,
                    target.text,
                    error.message,
                )
            return False
        self._missed.discard(target)
        return True

    def _nothing(self) -> UnavailableError:
        targets = ", ".join(f"'{one.text}'" for one in self.alias.targets)
        return UnavailableError(f"alias '{self.alias.name}': none of {targets} serves")


class Releases:
    """Owns the aliases: those of files, which are followed, and those set by requests.

    `find` finds a model or raises. An alias that requests have set is gone at the next start.
    """

    def __init__(
        self,
        catalog: ModelCatalog,
        find: Find,
        folders: Iterable[Path] = (),
    ) -> None:
        self._catalog = catalog
        self._find = find
        self._files = [folder / ALIASES_FILE for folder in folders]
        self._seen: dict[Path, FileState] = {}
        self._declared: dict[Path, dict[str, Alias]] = {}
        self._told: dict[Path, str] = {}
        self._models: dict[str, AliasModel] = {}
        self._history: dict[str, deque[Change]] = {}
        self._counts: dict[tuple[str, str], deque[_Count]] = {}

    # -- telling ------------------------------------------------------------------------------

    def find(self, name: str) -> AliasModel | None:
        """The models of an alias; `None` if there is no such alias."""
        return self._models.get(name)

    def aliases(self) -> Sequence[Alias]:
        """Every alias, by name."""
        return [self._models[name].alias for name in sorted(self._models)]

    def history(self, name: str) -> Sequence[Change]:
        """The changes of an alias, the last one last; raises `NotFoundError`."""
        if name not in self._history:
            raise NotFoundError(f"there is no alias '{name}'")
        return [*self._history[name]]

    # -- changing -----------------------------------------------------------------------------

    def set(self, name: str, fields: Mapping[str, Any]) -> None:
        """Make an alias, or change it; raises the first thing that is wrong."""
        check_name(name)
        alias = Alias.parse(name, fields)
        self._check(alias)
        self._take(alias, "set by a request")

    def remove(self, name: str, why: str = "removed by a request") -> None:
        """Remove an alias; raises `NotFoundError` if there is none."""
        if self._models.pop(name, None) is None:
            raise NotFoundError(f"there is no alias '{name}'")
        self._record(name, None, why)

    def roll_back(self, name: str, why: str = "rolled back by a request") -> None:
        """Have the first target take all requests; raises `NotFoundError`."""
        model = self._models.get(name)
        if model is None:
            raise NotFoundError(f"there is no alias '{name}'")
        self._take(model.alias.back(), why)

    def _check(self, alias: Alias) -> None:
        if self._is_model(alias.name):
            raise AlreadyExistsError(f"alias '{alias.name}': a model has this name")
        for one in alias.targets:
            if one.model in self._models:
                raise InvalidRequestError(
                    f"alias '{alias.name}': its target '{one.model}' is an alias"
                )
            try:
                self._find(one.model, one.version)
            except InferenceError as error:
                if one.weight > 0:
                    raise InvalidRequestError(
                        f"alias '{alias.name}': its target '{one.text}' does not serve:"
                        f" {error.message}"
                    ) from error
        named = [o.name for o in self.aliases() for t in o.targets if t.model == alias.name]
        if named:
            raise InvalidRequestError(
                f"alias '{alias.name}' is the name of a target of alias '{named[0]}'"
            )

    def _is_model(self, name: str) -> bool:
        """Whether a model has a name, also one that is loaded when it is called."""
        try:
            self._find(name, ANY_VERSION)
        except InferenceError:
            return False
        return True

    def _take(self, alias: Alias, why: str) -> None:
        model = self._models.get(alias.name)
        if model is None:
            self._models[alias.name] = AliasModel(alias, self._find)
        else:
            model.follow(alias)
        for one in alias.targets:
            self._counts.pop((alias.name, one.text), None)
        self._record(alias.name, alias, why)

    def _record(self, name: str, alias: Alias | None, why: str) -> None:
        changes = self._history.setdefault(name, deque(maxlen=_MOST_HISTORY))
        changes.append(Change(time.time(), alias, why))
        if alias is None:
            gone = [each for each in self._history if each not in self._models]
            for each in gone[:-_MOST_GONE]:
                del self._history[each]
        shares = "gone" if alias is None else alias.shares
        logger.info("alias '%s' is %s: %s", name, shares, why)
        self._catalog.changes.notify()

    # -- files and guards ---------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the files and watch over guarded aliases, while it is open."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self.read_files()
                self.watch()
            except Exception:  # a bug must be logged, and must not end the loop
                logger.exception("following the aliases failed")

    async def read_files(self) -> None:
        """Take what files declare, where they have changed; a wrong one changes nothing."""
        for file in self._files:
            state = await asyncio.to_thread(file_state, file)
            if state == self._seen.get(file):
                continue
            self._seen[file] = state
            try:
                declared = {} if state is None else await asyncio.to_thread(_read, file)
                aliases = [Alias.parse(name, fields) for name, fields in declared.items()]
            except (OSError, ValueError, InferenceError) as error:
                logger.error("%s is not taken: %s", file, error)
                continue
            self._declare(file, {alias.name: alias for alias in aliases})

    def _declare(self, file: Path, aliases: Mapping[str, Alias]) -> None:
        """Take what a file declares otherwise than before.

        What could not be taken is tried again, as its models may be loaded later.
        """
        before = self._declared.get(file, {})
        taken = {}
        wrong = ""
        for name, alias in aliases.items():
            try:
                if before.get(name) != alias:
                    self._check(alias)
                    self._take(alias, f"declared in {file}")
                taken[name] = alias
            except InferenceError as error:
                wrong = wrong or error.message
                taken |= {name: before[name]} if name in before else {}
        for name in before.keys() - aliases.keys() & self._models.keys():
            self.remove(name, f"no longer declared in {file}")
        self._declared[file] = taken
        if wrong:
            del self._seen[file]
        if wrong and wrong != self._told.get(file):
            logger.error("%s: %s", file, wrong)
        self._told[file] = wrong

    def watch(self) -> None:
        """Count what targets did, and go back where a guard says so."""
        for alias in self.aliases():
            guard = alias.guard
            if guard is None:
                continue
            for target in alias.targets[1:]:
                if target.weight > 0 and (why := self._fails(alias, target, guard)):
                    logger.error("alias '%s' goes back: %s", alias.name, why)
                    self.roll_back(alias.name, why)
                    break

    def _fails(self, alias: Alias, target: AliasTarget, guard: Guard) -> str:
        """Why a target is not to have requests, by what it did within the window; else empty."""
        try:
            statistics = self._catalog.find(target.model, target.version).statistics
        except InferenceError:
            return ""
        canceled = statistics.failures[FailureReason.CANCELED]
        failed = statistics.failures.total() - canceled
        now = _Count(time.monotonic(), statistics.success.count + failed, failed)
        counts = self._counts.setdefault((alias.name, target.text), deque())
        if counts and now.requests < counts[-1].requests:  # it was loaded again
            counts.clear()
        counts.append(now)
        while counts[0].at < now.at - guard.window:
            counts.popleft()
        requests = now.requests - counts[0].requests
        wrong = now.failed - counts[0].failed
        if requests < max(1, guard.min_requests) or wrong <= guard.max_error_rate * requests:
            return ""
        return (
            f"'{target.text}' failed {wrong} of {requests} requests within {guard.window:g} s,"
            f" more than {guard.max_error_rate:.2%}"
        )


def _read(file: Path) -> dict[str, Mapping[str, Any]]:
    """The tables of a file; raises `ValueError` for what is no TOML."""
    return tomllib.loads(file.read_text("utf-8"))
