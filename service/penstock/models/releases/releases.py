"""`Releases`: the aliases of a server, who owns their traffic, and why it went back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from penstock.core.access import AuditSink, tell_own
from penstock.core.errors import (
    AlreadyExistsError,
    InferenceError,
    InvalidRequestError,
    NotFoundError,
)
from penstock.core.request import ANY_VERSION
from penstock.models.releases.alias import Alias, AliasTarget, Cause, Change, Shadow
from penstock.models.releases.alias_files import AliasFiles
from penstock.models.releases.alias_model import AliasModel, Find
from penstock.models.releases.definition import definition_of, parse_alias, parse_plan
from penstock.models.releases.promotion import Promotion
from penstock.models.releases.shadow import ShadowTraffic
from penstock.models.releases.views import shown_alias, shown_changes
from penstock.models.releases.window import least_judged
from penstock.models.repository.repository import check_name
from penstock.models.serving.catalog import ModelCatalog
from penstock.system.machine import MachineUsage

logger = logging.getLogger(__name__)

_MOST_HISTORY = 100
_MOST_GONE = 100
"""Aliases that are gone and whose changes are still told; beyond, those that were made first."""
_MOST_EVENTS = 1000
"""Changes that a watcher has not read; beyond, the first are lost."""
_LOOK_SECONDS = 1.0

Event = tuple[str, dict[str, Any]]
"""The name of an alias, and a change of it as it is shown."""


class Releases:
    """Owns the aliases: those of files, which are followed, and those set by requests.

    `find` finds a model or raises; those of `folders` need not be loaded. An alias that requests
    have set is gone at the next start. `went_back` counts by alias and cause. The audit log, if
    there is one, is told of changes that no request asked for.
    """

    audit: AuditSink | None = None

    def __init__(
        self,
        catalog: ModelCatalog,
        find: Find,
        folders: Iterable[Path] = (),
    ) -> None:
        self.went_back: Counter[tuple[str, Cause]] = Counter()
        self._catalog = catalog
        self._find = find
        self._machine = MachineUsage(_LOOK_SECONDS)
        self._folders = [*folders]
        self._files = AliasFiles(self._folders)
        self._declared: dict[Path, dict[str, Alias]] = {}
        self._told: dict[Path, str] = {}
        self._models: dict[str, AliasModel] = {}
        self._history: dict[str, deque[Change]] = {}
        self._watching: set[tuple[asyncio.Queue[Event], Callable[[str], bool]]] = set()
        self._closing: set[asyncio.Task[None]] = set()

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
            raise _no_alias(name)
        return [*self._history[name]]

    def listed(self) -> list[dict[str, Any]]:
        """Every alias, by name, as it is defined."""
        return [{"name": alias.name} | definition_of(alias) for alias in self.aliases()]

    def shown(self, name: str) -> dict[str, Any]:
        """An alias with its traffic and history, for people; of one that is gone the history.

        Raises `NotFoundError`.
        """
        history = self.history(name)
        model = self._models.get(name)
        shown = {"name": name} if model is None else shown_alias(model)
        return shown | {"history": shown_changes(history)}

    @contextmanager
    def watching(
        self, sees: Callable[[str], bool] = lambda name: True
    ) -> Iterator[asyncio.Queue[Event]]:
        """Every change from now on, of aliases of which `sees` says so, while it is open."""
        watcher = asyncio.Queue[Event](), sees
        self._watching.add(watcher)
        try:
            yield watcher[0]
        finally:
            self._watching.discard(watcher)

    # -- changing -----------------------------------------------------------------------------

    def set(
        self,
        name: str,
        fields: Mapping[str, Any],
        sees: Callable[[str], bool] = lambda name: True,
    ) -> None:
        """Make an alias, or change it; raises the first thing that is wrong.

        Other aliases are named where `sees` says so.
        """
        check_name(name)
        alias = parse_alias(name, fields)
        self._check(alias, sees)
        self._take(alias, "set by a request")

    def remove(self, name: str, why: str = "removed by a request") -> None:
        """Remove an alias; raises `NotFoundError` if there is none."""
        model = self._models.pop(name, None)
        if model is None:
            raise _no_alias(name)
        self._close(model.shadow)
        self._record(name, None, why)

    def roll_back(
        self, name: str, why: str = "rolled back by a request", cause: Cause = Cause.REQUEST
    ) -> None:
        """Have the first target take all requests; raises `NotFoundError`."""
        model = self._model(name)
        self.went_back[name, cause] += 1
        self._take(model.alias.back(), why, cause)

    def promote(self, name: str, fields: Mapping[str, Any]) -> None:
        """Give a target more and more of an alias, step by step; raises what is wrong.

        What changes the alias meanwhile ends it.
        """
        model = self._model(name)
        alias, plan = model.alias, parse_plan(model.alias, fields)
        self._check_serves(alias, plan.target)
        needed = 0 if alias.guard is None else least_judged(alias.guard)
        promotion = Promotion(plan, time.monotonic(), needed)
        self._take(alias.with_share(plan.target, promotion.share), promotion.text)
        model.promotion = None if promotion.done else promotion

    def _model(self, name: str) -> AliasModel:
        if (model := self._models.get(name)) is None:
            raise _no_alias(name)
        return model

    def _check(self, alias: Alias, sees: Callable[[str], bool] = lambda name: True) -> None:
        if self._is_model(alias.name):
            raise AlreadyExistsError(f"alias '{alias.name}': a model has this name")
        if rings := sorted(alias.models & self._models.keys()):
            raise InvalidRequestError(f"alias '{alias.name}': its target '{rings[0]}' is an alias")
        for one in alias.targets:
            if one.weight > 0:
                self._check_serves(alias, one)
        if alias.shadow is not None:
            self._check_serves(alias, alias.shadow)
        if named := [one.name for one in self.aliases() if alias.name in one.models]:
            told = next((f"alias '{one}'" for one in named if sees(one)), "another alias")
            raise InvalidRequestError(f"alias '{alias.name}' is the name of a target of {told}")

    def _check_serves(self, alias: Alias, one: AliasTarget | Shadow) -> None:
        try:
            self._find(one.model, one.version)
        except InferenceError as error:
            raise InvalidRequestError(
                f"alias '{alias.name}': its target '{one.text}' does not serve: {error.message}"
            ) from error

    def _is_model(self, name: str) -> bool:
        """Whether a model has a name, also one of a folder that is not loaded."""
        if any((folder / name).is_dir() for folder in self._folders):
            return True
        try:
            self._find(name, ANY_VERSION)
        except InferenceError:
            return False
        return True

    def _take(self, alias: Alias, why: str, cause: Cause | None = None) -> None:
        model = self._models.get(alias.name)
        if model is None:
            self._models[alias.name] = AliasModel(alias, self._find, self._machine.utilization)
        else:
            if model.promotion is not None:
                why += f"; the {model.promotion.text}, ends"
            model.promotion = None
            self._close(model.follow(alias))
        self._record(alias.name, alias, why, cause)

    def _record(self, name: str, alias: Alias | None, why: str, cause: Cause | None = None) -> None:
        changes = self._history.setdefault(name, deque(maxlen=_MOST_HISTORY))
        changes.append(Change(time.time(), alias, why, cause))
        if alias is None:
            gone = [each for each in self._history if each not in self._models]
            for each in gone[:-_MOST_GONE]:
                del self._history[each]
                for one in Cause:
                    self.went_back.pop((each, one), None)
        for queue, sees in self._watching:
            if sees(name):
                if queue.qsize() >= _MOST_EVENTS:
                    queue.get_nowait()
                queue.put_nowait((name, shown_changes(changes)[-1]))
        shares = "gone" if alias is None else alias.shares
        level = logging.INFO if cause in (None, Cause.REQUEST) else logging.ERROR
        logger.log(level, "alias '%s' is %s: %s", name, shares, why, extra={"model": name})
        self._catalog.changes.notify()

    def _close(self, shadow: ShadowTraffic | None) -> None:
        if shadow is not None:
            task = asyncio.ensure_future(shadow.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    # -- files, guards and promotions ---------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the files, guard and promote, while it is open; then end the shadows."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            for model in self._models.values():
                self._close(model.shadow)
            await asyncio.wait([task, *self._closing])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            now = time.monotonic()
            try:
                if self._files.due(now):
                    await self.read_files()
                self.watch(now)
            except Exception:  # a bug must be logged, and must not end the loop
                logger.exception("following the aliases failed")

    async def read_files(self) -> None:
        """Take what files declare, where they have changed; a wrong one changes nothing."""
        for file, aliases in await self._files.changed():
            self._declare(file, aliases)

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
                    check_name(name)
                    self._check(alias)
                    self._take(alias, f"declared in {file}")
                    tell_own(self.audit, "alias", name, "file")
                taken[name] = alias
            except InferenceError as error:
                wrong = wrong or error.message
                taken |= {name: before[name]} if name in before else {}
        for name in before.keys() - aliases.keys() & self._models.keys():
            self.remove(name, f"no longer declared in {file}")
            tell_own(self.audit, "alias", name, "file", detail="removed")
        self._declared[file] = taken
        if wrong:
            self._files.read_again(file)
        if wrong and wrong != self._told.get(file):
            logger.error("%s: %s", file, wrong)
        self._told[file] = wrong

    def watch(self, now: float) -> None:
        """Go back where a guard says so at this time of `time.monotonic`; else promote."""
        for name, model in self._models.items():
            verdict = model.judge(now)
            if verdict is not None:
                self.roll_back(name, verdict.text, verdict.cause)
                tell_own(self.audit, "alias", name, "guard", detail=verdict.cause)
            elif (promotion := model.promotion) is not None and model.advance(now):
                alias = model.alias.with_share(promotion.plan.target, promotion.share)
                model.promotion = None
                self._take(alias, promotion.text)
                tell_own(self.audit, "alias", name, "promotion", detail=promotion.text)
                model.promotion = None if promotion.done else promotion


def _no_alias(name: str) -> NotFoundError:
    return NotFoundError(f"there is no alias '{name}'")
