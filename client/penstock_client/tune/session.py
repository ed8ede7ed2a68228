"""A search as it runs: variants are written, served, put under loads, and recorded."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from penstock_client.perf.compare import compare
from penstock_client.perf.errors import PerfError, Status
from penstock_client.perf.measure import Progress
from penstock_client.tune.automatic import composed_values, dimensions
from penstock_client.tune.check import Check, checked
from penstock_client.tune.choice import FAILED, Aims, Figures, Standing, best_standing, objective
from penstock_client.tune.composition import Composition, read_composition
from penstock_client.tune.errors import ServerGoneError, TuneError, VariantError
from penstock_client.tune.load.joint import AnyTest, JointTest
from penstock_client.tune.load.load_test import LoadTest, Measurement, is_language_model, perf_words
from penstock_client.tune.load.loads import Load
from penstock_client.tune.load.measured_server import MeasuredServer
from penstock_client.tune.measured import Measured, Ranking, Row
from penstock_client.tune.model_files import ENGINE_FILE
from penstock_client.tune.options import BRUTE, OPTUNA, Member, Plan
from penstock_client.tune.record import FILE, Record
from penstock_client.tune.remote import RemoteLaunch, RemoteServer, read_remote
from penstock_client.tune.search import BruteSearch, QuickSearch, Search
from penstock_client.tune.served import serving
from penstock_client.tune.settings import CACHE, is_engine, original
from penstock_client.tune.space import Space, Variant, key, label

_CACHE_BYTES = 64 << 20


class Launch(Protocol):
    """A way to serve variants one after the other."""

    def loaded(self, changes: Mapping[str, Any]) -> AbstractContextManager[MeasuredServer]:
        """A server with a variant; raises `VariantError` or `ServerGoneError`."""


class LocalLaunch:
    """A new server for each variant, over a repository in `folder` that holds it."""

    def __init__(self, plan: Plan, composition: Composition, folder: Path) -> None:
        self._composition = composition
        self._repository = folder / "models"
        self._log = plan.output / "server.log"
        self._options = plan.serving
        self._flags = plan.serving.flags
        cached = any(composition.owner(name)[1] == CACHE for name in plan.values)
        if cached and not any(flag.startswith("--cache-config") for flag in self._flags):
            self._flags = (*self._flags, f"--cache-config=local,size={_CACHE_BYTES}")

    @contextmanager
    def loaded(self, changes: Mapping[str, Any]) -> Iterator[MeasuredServer]:
        """A server with a variant; raises `VariantError`."""
        self._composition.write_variant(changes, self._repository)
        options = self._options
        with serving(
            self._repository, self._log, self._flags, options.environment, options.load_seconds
        ) as server:
            for files in self._composition.models:
                server.load(files.name)
            yield server


_TITLE = 40  # letters of a variant's name beside its progress, which has to fit a line
Say = Callable[[Iterable[str]], None]
"""Prints lines for the user."""

Report = Callable[[str, Progress], None]
"""Shows how far the measurement of a variant is, which the text names."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that was measured, the original first; `ended` says why the search was cut short.

    It `is_lost` where the server went away.
    """

    plan: Plan
    composition: Composition
    ranking: Ranking
    check: Check | None = None
    ended: str = ""
    interrupted: bool = False
    is_lost: bool = False


class Tuning:
    """One model's search."""

    def __init__(self, plan: Plan, say: Say, report: Report) -> None:
        self._plan = plan
        self._say = say
        self._report = report
        self._remote: RemoteServer | None = None
        if plan.remote is not None:
            self._remote = RemoteServer(plan.remote, plan.serving.load_seconds)
        self._composition = self._read()
        self._check_engines()
        self._record = Record(plan.output / FILE)
        self._space = Space([])
        self._began = time.monotonic()
        self._visited: dict[Variant, Standing] = {}
        self._aims = self._aims_of({})

    def run(self) -> Outcome:
        """Measure until the search ends, its budget is spent, or Ctrl-C; raises `TuneError`."""
        self._record.begin(self._circumstances(), resume=self._plan.resume)
        ended, check, interrupted, is_lost = "", None, False, False
        try:
            with self._launch() as launch:
                ended = self._search(launch)
                check = self._check(launch)
        except KeyboardInterrupt:
            ended, interrupted = "interrupted: these are the results until then", True
        except ServerGoneError as error:
            ended, is_lost = f"{error}: these are the results until then", True
        is_refuted = check is not None and not check.is_confirmed
        ranking = Ranking(list(self._measured()), self._aims, is_refuted=is_refuted)
        return Outcome(self._plan, self._composition, ranking, check, ended, interrupted, is_lost)

    def _read(self) -> Composition:
        """The models as they are; raises `TuneError`."""
        plan = self._plan
        if self._remote is not None:
            return read_remote(plan, self._remote)
        return read_composition(
            plan.repositories, plan.model, plan.parts, with_steps=not plan.values
        )

    def _check_engines(self) -> None:
        for name in self._plan.values:
            files, setting = self._composition.owner(name)
            if is_engine(setting) and files.engine_path is None:
                where = "" if self._remote is None else " that can be changed from here"
                raise TuneError(
                    f"model '{files.name}' has no {ENGINE_FILE}{where}, which --engine is for",
                    Status.UNREACHABLE,
                )

    @contextmanager
    def _launch(self) -> Iterator[Launch]:
        """The launch of variants; a server of another owner gets its own configurations back."""
        if self._remote is None:
            with TemporaryDirectory(prefix="penstock-tune-") as folder:
                yield LocalLaunch(self._plan, self._composition, Path(folder))
            return
        launch = RemoteLaunch(self._composition, self._remote)
        try:
            yield launch
        finally:
            try:
                launch.restore()
            except (VariantError, ServerGoneError) as error:
                self._say([f"the server did not get its own configurations back: {error}"])

    def _aims_of(self, config: Mapping[str, Any]) -> Aims:
        """The objectives of the plan, or else those for a model of this configuration."""
        aims = self._plan.aims
        mixed = bool(self._plan.together)
        name = "tokens" if is_language_model(config) and not mixed else "throughput"
        return replace(aims, objectives=aims.objectives or (objective(name),))

    def _circumstances(self) -> dict[str, Any]:
        """Circumstances that have to be equal for measurements to be comparable."""
        plan, options, main = self._plan, self._plan.serving, self._composition.main
        parts = {name: [each.text, each.engine] for name, each in self._composition.parts.items()}
        at = [] if plan.remote is None else [plan.remote.grpc.authority]
        return {
            "model": plan.model,
            "config.pbtxt": main.text,
            "model.json": main.engine,
            **({"composing models": parts} if parts else {}),
            "load": [
                *plan.perf,
                *(each.label for each in plan.loads.all),
                *([member.model, *member.perf] for member in plan.together),
            ],
            "server": [*at, *options.flags, *options.environment.items()],
        }

    def _search(self, launch: Launch) -> str:
        """Measure variant by variant; why the search ended before its own end, if it did."""
        if "config" in self._record.facts:
            self._open_space()
        else:
            self._measure_original(launch)
        search = _search_of(self._plan, self._space)
        while (variant := search.next(self._visited)) is not None:
            if self._is_open(variant):
                if reason := self._spent():
                    return reason
                self._measure(launch, variant)
            self._visit(variant)
        return ""

    def _measure_original(self, launch: Launch) -> None:
        """Ask a server for the configurations, and measure the model as it is on that server."""
        try:
            with launch.loaded({}) as server:
                self._record.add_facts(
                    {
                        "config": server.config(self._plan.model),
                        "composing": {n: server.config(n) for n in self._composition.parts},
                    }
                )
                self._open_space()
                self._put_loads(self._space.start, server)
        except VariantError as error:
            text = f"model '{self._plan.model}' cannot be measured as it is: {error}"
            raise TuneError(text, Status.UNREACHABLE) from error
        self._visit(self._space.start)
        if self._plan.mode == BRUTE:
            minutes = (time.monotonic() - self._began) * (self._space.size - 1) / 60
            self._say([f"the other {self._space.size - 1} take about {minutes:.0f} min"])

    def _measure(self, launch: Launch, variant: Variant) -> None:
        """Measure the open loads of a variant; the reason why it cannot be is recorded, too."""
        changes = self._space.changes(variant)
        try:
            with launch.loaded(changes) as server:
                self._put_loads(variant, server)
        except VariantError as error:
            self._record.add_failure(changes, str(error))

    def _put_loads(self, variant: Variant, server: MeasuredServer) -> None:
        changes = self._space.changes(variant)
        test = self._load_test(f"[{len(self._visited) + 1}] {label(changes)}", server)
        done = dict(self._record.points.get(key(changes), {}))
        while (load := self._plan.loads.next(done)) is not None:
            figures = done[load.label] = _measured(test, load, server)
            self._record.add(changes, load.label, figures)

    def _load_test(self, title: str, server: MeasuredServer) -> AnyTest:
        plan, configs = self._plan, self._configs
        report = partial(self._report, title[:_TITLE])

        def test(member: Member, report: Callable[[Progress], None]) -> LoadTest:
            words = perf_words(member.model, member.perf, configs[member.model])
            return LoadTest(words, server, report)

        if not plan.together:
            return test(Member(plan.model, plan.perf), report)
        # One of them shows how far they all are.
        first, *others = plan.together
        found = {each.model: test(each, lambda _: None) for each in others}
        return JointTest({first.model: test(first, report), **found})

    def _check(self, launch: Launch) -> Check | None:
        """Measure the best variant and the original once more, in turns, if one is better."""
        ranking = Ranking(list(self._measured()), self._aims)
        best, first = ranking.winner, ranking.original
        if not self._plan.rounds or best is None or first is None or best is first:
            return None
        self._say([f"once more, in turns: {label(best.variant.changes)} and the original"])
        pairs = compare(
            lambda side: self._once_more((best, first)[side], launch), self._plan.rounds
        )
        return checked(pairs, self._aims)

    def _once_more(self, row: Row, launch: Launch) -> Figures | None:
        """The figures of a variant under the load at which it was best; `None` if it fails now."""
        changes = row.variant.changes
        name = row.figures["load"]["label"]
        load = next(each for each in self._plan.loads.all if each.label == name)
        try:
            with launch.loaded(changes) as server:
                return _measured(self._load_test(label(changes), server), load, server)
        except VariantError as error:
            self._say([f"{label(changes)}: failed: {error}"])
            return None

    @property
    def _configs(self) -> dict[str, Any]:
        """The models' configurations as a server has completed them, by name."""
        facts = self._record.facts
        return {self._plan.model: facts["config"], **facts.get("composing", {})}

    def _open_space(self) -> None:
        facts, configs = self._record.facts, self._configs
        self._aims = self._aims_of(facts["config"])

        def present(name: str) -> Any:
            files, setting = self._composition.owner(name)
            return original(setting, configs[files.name], files.engine)

        values = composed_values(self._composition, configs, self._plan.values)
        self._space = Space(dimensions(values, present))
        words = ", ".join(f"{each.name} ({len(each.values)})" for each in self._space.dimensions)
        self._say([f"{self._plan.name}: {self._space.size} variants: {words or 'no settings'}"])

    def _spent(self) -> str:
        budget = self._plan.budget
        if budget.variants and len(self._visited) >= budget.variants:
            return f"the budget of {budget.variants} variants is spent"
        if budget.seconds and time.monotonic() - self._began >= budget.seconds:
            return f"the budget of {budget.seconds:g} s is spent"
        return ""

    def _is_open(self, variant: Variant) -> bool:
        """Whether there is something left to measure of a variant."""
        name = key(self._space.changes(variant))
        known = self._record.points.get(name, {})
        return name not in self._record.failures and self._plan.loads.next(known) is not None

    def _visit(self, variant: Variant) -> None:
        """Rank a variant that has been measured, and tell of it."""
        changes = self._space.changes(variant)
        name = key(changes)
        points = list(self._record.points.get(name, {}).values())
        failure = self._record.failures.get(name)
        found = FAILED if failure else best_standing(points, self._aims)
        self._visited[variant] = found
        measured = Measured(changes, self._space.settings(variant), tuple(points), failure or "")
        self._say(measured.line(len(self._visited), self._aims))

    def _measured(self) -> Iterable[Measured]:
        """Everything on record, of variants too that were not measured to their end."""
        originals = {each.name: each.original for each in self._space.dimensions}
        names = dict.fromkeys([*self._record.points, *self._record.failures])
        for name in names:
            changes = json.loads(name)
            points = tuple(self._record.points.get(name, {}).values())
            failure = self._record.failures.get(name, "")
            yield Measured(changes, {**originals, **changes}, points, failure)


def _measured(test: AnyTest, load: Load, server: MeasuredServer) -> dict[str, Any]:
    """The figures of one load; raises `VariantError` if it cannot be put on, or ends the server."""
    try:
        measurement: Measurement = test.measure(load)
    except PerfError as error:
        server.check()
        raise VariantError(str(error)) from error
    if measurement.interrupted:
        raise KeyboardInterrupt
    server.check()
    return measurement.figures


def _search_of(plan: Plan, space: Space) -> Search:
    """The search that a plan asks for; raises `TuneError` where Optuna is not installed."""
    if plan.mode == OPTUNA:
        from penstock_client.tune.optuna_search import OptunaSearch

        return OptunaSearch(space, plan.trials)
    return BruteSearch(space) if plan.mode == BRUTE else QuickSearch(space)
