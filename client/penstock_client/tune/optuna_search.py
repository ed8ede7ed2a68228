"""A search by Optuna, whose sampler proposes variants from those that were measured."""

from __future__ import annotations

from itertools import islice
from typing import Any

from penstock_client.perf.errors import Status
from penstock_client.tune.choice import Standing
from penstock_client.tune.errors import TuneError
from penstock_client.tune.options import Trials
from penstock_client.tune.search import BruteSearch, Standings, is_better
from penstock_client.tune.space import Space, Variant

_RANK = 1e6  # of standings: any that keeps all limits is above those that do not
_PROPOSALS = 50
_MISSING = (
    "--mode optuna needs the package optuna: pip install 'penstock-client[tune]'; --mode quick and"
    " --mode brute need nothing"
)


class OptunaSearch:
    """Samples by tree-structured Parzen estimators, with as many trials as `trials` says."""

    def __init__(self, space: Space, trials: Trials) -> None:
        try:
            import optuna
        except ImportError as error:
            raise TuneError(_MISSING, Status.UNREACHABLE) from error
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna: Any = optuna
        self._space = space
        self._trials = trials
        self._distributions = {
            each.name: optuna.distributions.IntDistribution(
                min(0, each.start), len(each.values) - 1
            )
            for each in space.dimensions
        }

    def next(self, standings: Standings) -> Variant | None:
        """The first proposal that was not measured."""
        start = self._space.start
        if start not in standings:
            return start
        if self._is_enough(standings):
            return None
        study = self._study(standings)
        for _ in range(_PROPOSALS):
            trial = study.ask(self._distributions)
            variant = tuple(trial.params[each.name] for each in self._space.dimensions)
            if variant not in standings:
                return variant
            study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)
        return BruteSearch(self._space).next(standings)

    def _is_enough(self, standings: Standings) -> bool:
        least, most = self._trials.bounds(self._space.size)
        return len(standings) >= most or (
            len(standings) >= least and _without_gain(standings) >= self._trials.patience
        )

    def _study(self, standings: Standings) -> Any:
        """A study of what was measured; equal measurements lead to equal proposals."""
        optuna = self._optuna
        sampler = optuna.samplers.TPESampler(seed=len(standings), n_startup_trials=5)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for variant, found in standings.items():
            names = (each.name for each in self._space.dimensions)
            study.add_trial(
                optuna.trial.create_trial(
                    params=dict(zip(names, variant, strict=True)),
                    distributions=self._distributions,
                    value=_value(found),
                )
            )
        return study


def _value(found: Standing) -> float:
    return found.rank * _RANK + max(-_RANK / 2, found.value)


def _without_gain(standings: Standings) -> int:
    """The number of last trials that were not better than all before."""
    found = list(standings.values())
    top, at = found[0], 0
    for number, each in enumerate(islice(found, 1, None), 1):
        if is_better(each, top):
            top, at = each, number
    return len(found) - 1 - at
