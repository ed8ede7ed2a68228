"""Admission of sequence requests: validation, lost sequences, control tensors and states."""

from __future__ import annotations

import logging
from collections.abc import Hashable

from penstock.core.errors import (
    InvalidRequestError,
    UnavailableError,
    request_prefix,
    shortened,
)
from penstock.core.log.log_fields import request_fields
from penstock.core.log.log_throttle import repeat_note
from penstock.core.request import InferenceRequest
from penstock.inflight.inference import Inference
from penstock.scheduling.sequences.controls import Controls, IdControl
from penstock.scheduling.sequences.implicit_state import ImplicitStates
from penstock.scheduling.sequences.strategy import SequenceStep
from penstock.scheduling.sequences.table import LiveSequence, SequenceTable

logger = logging.getLogger(__name__)


class SequenceAdmission:
    """Validates requests, and finds or opens their sequences (S-02 to S-05, S-12).

    `id_control` is the model's control tensor for correlation ids, if it has one. A request to an
    `iterative` model may lack an id: it gets a sequence of its own.
    """

    def __init__(
        self,
        model: str,
        table: SequenceTable[SequenceStep],
        lost: LostSequences,
        *,
        iterative: bool,
        id_control: IdControl | None,
    ) -> None:
        self._model = model
        self._table = table
        self._lost_sequences = lost
        self._iterative = iterative
        self._id_control = id_control
        self._latest_id = 0

    def check(self, inference: Inference) -> None:
        """Raise `InvalidRequestError` for a request of several rows, without a correlation id, or
        with one that the control tensor cannot hold.
        """
        request = inference.request
        if inference.rows > 1:
            raise InvalidRequestError(
                f"inference request to model '{self._model}' must specify batch-size 1 due to"
                " requirements of sequence batcher"
            )
        if request.correlation_id:
            self._check_kind(request)
            return
        if not self._iterative:
            raise InvalidRequestError(
                f"inference request to model '{self._model}' must specify a non-zero or non-empty"
                " correlation ID"
            )
        inference.request = request._replace(
            correlation_id=self._generate_id(), sequence_start=True, sequence_end=False
        )

    def sequence(self, request: InferenceRequest, now: float) -> LiveSequence[SequenceStep]:
        """Find or open the request's sequence; raises if it was not started, or was lost."""
        id = request.correlation_id
        sequence = self._table.find(id)
        if sequence is None:
            if not request.sequence_start:
                raise self._lost_sequences.find_error(id) or self._not_started(id)
            self._lost_sequences.forget(id)
            return self._table.open(id, now)
        if request.sequence_start and (note := repeat_note("conflict", self._model)) is not None:
            logger.warning(
                "sequence %s for model '%s' has a conflict. The previous sequence did not end"
                " before this sequence start. Previous sequence will be terminated early.%s",
                shortened(str(id)),
                self._model,
                note,
                extra=request_fields(request),
            )
        return sequence

    def _check_kind(self, request: InferenceRequest) -> None:
        """Refuse a text where the model takes numbers, and the other way round."""
        control = self._id_control
        if control is None or (given := control.mismatch(request.correlation_id)) is None:
            return
        raise InvalidRequestError(
            f"{request_prefix(request.id)}sequence batching control"
            f" '{control.name}' data-type is '{given}', but model '{self._model}' expects"
            f" '{control.datatype}'"
        )

    def _generate_id(self) -> int | str:
        """Generate an id that no live sequence has, of the kind that the model takes."""
        as_text = self._id_control is not None and self._id_control.takes_text
        while True:
            self._latest_id += 1
            id = str(self._latest_id) if as_text else self._latest_id
            if self._table.find(id) is None:
                return id

    def _not_started(self, id: int | str) -> InvalidRequestError:
        return InvalidRequestError(
            f"inference request for sequence {id} to model '{self._model}' must specify"
            " the START flag on the first request of the sequence"
        )


class LostSequences:
    """Sequences that ended because their instance went down, with the errors for later requests."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._lost: dict[Hashable, tuple[float, str]] = {}

    def add(self, id: Hashable, instance: str, now: float) -> UnavailableError:
        """Record a lost sequence; returns the error for its requests."""
        text = (
            f"sequence {id} of model '{self._model}' was lost when instance '{instance}' went"
            " down; it has to be started again"
        )
        self._lost.pop(id, None)  # to keep the order of time
        self._lost[id] = now, text
        return UnavailableError(text)

    def find_error(self, id: Hashable) -> UnavailableError | None:
        """The error for requests of a lost sequence; `None` if it was not lost."""
        found = self._lost.get(id)
        return None if found is None else UnavailableError(found[1])

    def forget(self, id: Hashable) -> None:
        """Forget a sequence that was started again."""
        self._lost.pop(id, None)

    def expire(self, before: float) -> None:
        """Forget sequences that were lost before that time."""
        while self._lost and (oldest := next(iter(self._lost.items())))[1][0] <= before:
            del self._lost[oldest[0]]


class RequestPreparation:
    """Adds control tensors and implicit states to requests, and keeps the states of responses."""

    def __init__(self, controls: Controls, states: ImplicitStates) -> None:
        self._controls = controls
        self._states = states

    @property
    def id_control(self) -> IdControl | None:
        """The model's control tensor for correlation ids, if it has one."""
        return self._controls.id

    @property
    def keeps_state(self) -> bool:
        return bool(self._states)

    def admit(self, inference: Inference, sequence: LiveSequence[SequenceStep]) -> None:
        """Request the states as outputs, and keep those of responses in the sequence."""
        if self._states:
            request, stream = inference.request, inference.stream
            keep = sequence.state.__setitem__
            stream.transform = self._states.keeping(request, keep, stream.transform)
            inference.request = self._states.requesting(request)

    def prepare(self, inference: Inference, sequence: LiveSequence[SequenceStep]) -> None:
        """Add the control tensors and current states, just before the request is executed."""
        request = inference.request
        if self._states and (request.sequence_start or not sequence.state):
            sequence.state.update(self._states.initial())
        inputs = {**request.inputs, **self._controls.tensors(request), **sequence.state}
        inference.request = request._replace(inputs=inputs)
