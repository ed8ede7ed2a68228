"""What a request must be like to be part of a sequence, and which one that is."""

from __future__ import annotations

import logging
from dataclasses import replace

from penstock.core.errors import InvalidRequestError
from penstock.core.request import InferenceRequest
from penstock.inflight.inference import Inference
from penstock.scheduling.sequences.live_sequence import LiveSequence
from penstock.scheduling.sequences.losses import Losses
from penstock.scheduling.sequences.strategy import Step
from penstock.scheduling.sequences.table import SequenceTable

logger = logging.getLogger(__name__)


class Entrance:
    """Refuses what is in no sequence, and begins those that start (S-02 to S-05).

    An `iterative` model need not be told of sequences: each request gets one made up.
    """

    def __init__(
        self, model: str, table: SequenceTable[Step], losses: Losses, *, iterative: bool
    ) -> None:
        self._model = model
        self._table = table
        self._losses = losses
        self._iterative = iterative
        self._latest_id = 0

    def check(self, inference: Inference) -> None:
        """Raise for a request of several rows or without an id."""
        request = inference.request
        if inference.rows > 1:
            raise InvalidRequestError(
                f"inference request to model '{self._model}' must specify batch-size 1 due to"
                " requirements of sequence batcher"
            )
        if request.correlation_id:
            return
        if not self._iterative:
            raise InvalidRequestError(
                f"inference request to model '{self._model}' must specify a non-zero or non-empty"
                " correlation ID"
            )
        inference.request = replace(
            request, correlation_id=self._own_id(), sequence_start=True, sequence_end=False
        )

    def sequence(self, request: InferenceRequest, now: float) -> LiveSequence[Step]:
        """The sequence that the request belongs to; raises if it was not started."""
        id = request.correlation_id
        sequence = self._table.find(id)
        if sequence is None:
            if not request.sequence_start:
                raise self._losses.of(id) or self._not_started(id)
            self._losses.forget(id)
            return self._table.open(id, now)
        if request.sequence_start:
            logger.warning(
                "sequence %s for model '%s' has a conflict. The previous sequence did not end"
                " before this sequence start. Previous sequence will be terminated early.",
                id,
                self._model,
            )
        return sequence

    def _own_id(self) -> int:
        """An id that no live sequence has."""
        self._latest_id += 1
        while self._table.find(self._latest_id) is not None:
            self._latest_id += 1
        return self._latest_id

    def _not_started(self, id: int | str) -> InvalidRequestError:
        return InvalidRequestError(
            f"inference request for sequence {id} to model '{self._model}' must specify"
            " the START flag on the first request of the sequence"
        )
