"""From the request of a client to what the model sees: with control tensors and states."""

from __future__ import annotations

from dataclasses import replace

from penstock.inflight.inference import Inference
from penstock.scheduling.sequences.controls import Controls
from penstock.scheduling.sequences.implicit_state import States
from penstock.scheduling.sequences.live_sequence import LiveSequence
from penstock.scheduling.sequences.strategy import Step


class Preparation:
    """Adds what the server knows of a sequence, and takes back what it keeps for it."""

    def __init__(self, controls: Controls, states: States) -> None:
        self._controls = controls
        self._states = states

    @property
    def keeps_state(self) -> bool:
        return bool(self._states)

    def admit(self, inference: Inference, sequence: LiveSequence[Step]) -> None:
        """Ask for the states, and keep those that come with responses."""
        if self._states:
            request, stream = inference.request, inference.stream
            keep = sequence.state.__setitem__
            stream.transform = self._states.taking(request, keep, stream.transform)
            inference.request = self._states.asking(request)

    def prepare(self, inference: Inference, sequence: LiveSequence[Step]) -> None:
        """Add the tensors of this moment, which is when the request can be taken."""
        request = inference.request
        if self._states and (request.sequence_start or not sequence.state):
            sequence.state.update(self._states.initial())
        inputs = {**request.inputs, **self._controls.of(request), **sequence.state}
        inference.request = replace(request, inputs=inputs)
