"""A search as it runs: variants are written, served, put under loads, and recorded."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from penstock.perf.compare import compare
from penstock.perf.errors import PerfError, Status
from penstock.perf.measure import Progress
from penstock.tune.automatic import automatic_values, dimensions
from penstock.tune.check import Check, checked
from penstock.tune.choice import FAILED, Aims, Figures, Standing, best_standing, objective
from penstock.tune.errors import TuneError, VariantError
from penstock.tune.load_test import LoadTest, Measurement, is_language_model, perf_words
from penstock.tune.loads import Load
from penstock.tune.measured import Measured, Ranking, Row
from penstock.tune.model_files import ENGINE_FILE, ModelFiles, read_model
from penstock.tune.options import BRUTE, OPTUNA, Plan
from penstock.tune.record import FILE, Record
from penstock.tune.search import BruteSearch, QuickSearch, Search
from penstock.tune.served import ModelServer, serving
from penstock.tune.settings import CACHE, is_engine
from penstock.tune.space import Space, Variant, key, label

_CACHE_BYTES = 64 << 20
_TITLE = 40  # letters of a variant's name beside its progress, which has to fit a line
Say = Callable[[Iterable[str]], None]
"""Prints lines for the user."""

Report = Callable[[str, Progress], None]
"""Shows how far the measurement of a variant is, which the text names."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that was measured, the original first; `ended` says why the search was cut short."""

    plan: Plan
    files: ModelFiles
    ranking: Ranking
    check: Check | None = None
    ended: str = ""
    interrupted: bool = False


class Tuning:
    """One model's search."""

    def __init__(self, plan: Plan, say: Say, report: Report) -> None:
        self._plan = plan
        self._say = say
        self._report = report
        self._files = read_model(plan.repositories, plan.model)
        if self._files.engine_path is None and any(map(is_engine, plan.values)):
            raise TuneError(f"model '{plan.model}' has no {ENGINE_FILE}, which --engine is for")
        self._record = Record(plan.output / FILE)
        self._space = Space([])
        self._began = time.monotonic()
        self._visited: dict[Variant, Standing] = {}
        self._aims = self._aims_of({})

    def run(self) -> Outcome:
        """Measure until the search ends, its budget is spent, or Ctrl-C; raises `TuneError`."""
        self._record.begin(self._circumstances(), resume=self._plan.resume)
        ended, check, interrupted = "", None, False
        try:
            with TemporaryDirectory(prefix="penstock-tune-") as folder:
                ended = self._search(Path(folder))
                check = self._check(Path(folder))
        except KeyboardInterrupt:
            ended, interrupted = "interrupted: these are the results until then", True
        is_refuted = check is not None and not check.is_confirmed
        ranking = Ranking(list(self._measured()), self._aims, is_refuted=is_refuted)
        return Outcome(self._plan, self._files, ranking, check, ended, interrupted)

    def _aims_of(self, config: Mapping[str, Any]) -> Aims:
        """What the plan aims at, or what a model of this configuration is for."""
        aims = self._plan.aims
        name = "tokens" if is_language_model(config) else "throughput"
        return replace(aims, objectives=aims.objectives or (objective(name),))

    def _circumstances(self) -> dict[str, Any]:
        """What has to be equal for measurements to be comparable."""
        options = self._plan.serving
        return {
            "model": self._plan.model,
            "config.pbtxt": self._files.text,
            "model.json": self._files.engine,
            "load": [*self._plan.perf, *(each.label for each in self._plan.loads.all)],
            "server": [*options.flags, *options.environment.items()],
        }

    def _search(self, folder: Path) -> str:
        """Measure variant by variant; why the search ended before its own end, if it did."""
        if "config" in self._record.facts:
            self._open_space()
        else:
            self._measure_original(folder)
        search = _search_of(self._plan, self._space)
        while (variant := search.next(self._visited)) is not None:
            if self._is_open(variant):
                if reason := self._spent():
                    return reason
                self._measure(folder, variant)
            self._visit(variant)
        return ""

    def _measure_original(self, folder: Path) -> None:
        """Ask a server what the model is, and measure the model as it is with the same server."""
        self._files.write_variant({}, folder / "models")
        try:
            with self._server(folder) as server:
                server.load(self._plan.model)
                self._record.add_facts({"config": server.config(self._plan.model)})
                self._open_space()
                self._put_loads(self._space.start, server)
        except VariantError as error:
            text = f"model '{self._plan.model}' cannot be measured as it is: {error}"
            raise TuneError(text, Status.UNREACHABLE) from error
        self._visit(self._space.start)
        if self._plan.mode == BRUTE:
            minutes = (time.monotonic() - self._began) * (self._space.size - 1) / 60
            self._say([f"the other {self._space.size - 1} take about {minutes:.0f} min"])

    def _measure(self, folder: Path, variant: Variant) -> None:
        """Measure what is open of a variant; why it cannot be measured is recorded, too."""
        changes = self._space.changes(variant)
        try:
            self._files.write_variant(changes, folder / "models")
            with self._server(folder) as server:
                server.load(self._plan.model)
                self._put_loads(variant, server)
        except VariantError as error:
            self._record.add_failure(changes, str(error))

    def _put_loads(self, variant: Variant, server: ModelServer) -> None:
        changes = self._space.changes(variant)
        test = self._load_test(f"[{len(self._visited) + 1}] {label(changes)}", server)
        done = dict(self._record.points.get(key(changes), {}))
        while (load := self._plan.loads.next(done)) is not None:
            figures = done[load.label] = _measured(test, load, server)
            self._record.add(changes, load.label, figures)

    def _load_test(self, title: str, server: ModelServer) -> LoadTest:
        words = perf_words(self._plan.model, self._plan.perf, self._record.facts["config"])
        return LoadTest(words, server, partial(self._report, title[:_TITLE]))

    def _check(self, folder: Path) -> Check | None:
        """Measure the best variant and the original once more, in turns, if one is better."""
        ranking = Ranking(list(self._measured()), self._aims)
        best, original = ranking.winner, ranking.original
        if not self._plan.rounds or best is None or original is None or best is original:
            return None
        self._say([f"once more, in turns: {label(best.variant.changes)} and the original"])
        pairs = compare(
            lambda side: self._once_more((best, original)[side], folder), self._plan.rounds
        )
        return checked(pairs, self._aims)

    def _once_more(self, row: Row, folder: Path) -> Figures | None:
        """The figures of a variant under the load at which it was best; `None` if it fails now."""
        changes = row.variant.changes
        name = row.figures["load"]["label"]
        load = next(each for each in self._plan.loads.all if each.label == name)
        try:
            self._files.write_variant(changes, folder / "models")
            with self._server(folder) as server:
                server.load(self._plan.model)
                return _measured(self._load_test(label(changes), server), load, server)
        except VariantError as error:
            self._say([f"{label(changes)}: failed: {error}"])
            return None

    def _server(self, folder: Path) -> AbstractContextManager[ModelServer]:
        options = self._plan.serving
        flags = options.flags
        if CACHE in self._plan.values and not any(f.startswith("--cache-config") for f in flags):
            flags = (*flags, f"--cache-config=local,size={_CACHE_BYTES}")
        log = self._plan.output / "server.log"
        return serving(folder / "models", log, flags, options.environment, options.load_seconds)

    def _open_space(self) -> None:
        config, engine = self._record.facts["config"], self._files.engine
        self._aims = self._aims_of(config)
        values = self._plan.values or automatic_values(config, engine)
        self._space = Space(dimensions(values, config, engine))
        words = ", ".join(f"{each.name} ({len(each.values)})" for each in self._space.dimensions)
        self._say([f"{self._plan.model}: {self._space.size} variants: {words or 'no settings'}"])

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


def _measured(test: LoadTest, load: Load, server: ModelServer) -> dict[str, Any]:
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
        from penstock.tune.optuna_search import OptunaSearch

        return OptunaSearch(space, plan.trials)
    return BruteSearch(space) if plan.mode == BRUTE else QuickSearch(space)
