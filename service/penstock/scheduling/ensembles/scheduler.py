"""`EnsembleScheduler`: executes requests by calling the models of an ensemble's steps."""

from __future__ import annotations

import time
from collections.abc import Sequence

from penstock.core.errors import InferenceError
from penstock.inflight.inference import Inference
from penstock.scheduling.ensembles.calls import ConcurrencyLimit
from penstock.scheduling.ensembles.plan import EnsemblePlan
from penstock.scheduling.ensembles.run import Ensemble, EnsembleRun, StepModel


class EnsembleScheduler:
    """Starts each request at once; queues are in front of the steps' models.

    `models` are those of the plan's steps. `max_inflight` bounds how many calls of one step run
    for all requests together; 0 is no bound (E-11).
    """

    def __init__(
        self, plan: EnsemblePlan, models: Sequence[StepModel], max_inflight: int = 0
    ) -> None:
        limits = [ConcurrencyLimit(max_inflight) for _ in models] if max_inflight else []
        self._ensemble = Ensemble(plan, models, limits)

    def schedule(self, inference: Inference) -> None:
        inference.started(time.monotonic_ns())
        EnsembleRun(self._ensemble, inference).begin()

    def abandon(self, error: InferenceError) -> None:
        """Fail every request in flight with `error`."""
        for run in list(self._ensemble.runs):
            run.fail(error)

    async def drain(self) -> None:
        """Executions are those of the steps' models, which wait for them."""
