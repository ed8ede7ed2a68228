"""`AliasModel`: the models behind an alias, which frontends use as one model."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import random

from penstock.core.config import ModelConfig
from penstock.core.errors import (
    DeadlineExceededError,
    InferenceError,
    RequestCancelledError,
    UnavailableError,
    as_inference_error,
)
from penstock.core.request import (
    Draw,
    ExchangePart,
    InferenceRequest,
    InferenceResponse,
)
from penstock.core.stream import ResponseStream
from penstock.models.releases.alias import Alias, AliasTarget
from penstock.models.releases.promotion import Promotion
from penstock.models.releases.shadow import ShadowTraffic
from penstock.models.releases.window import TargetWindow, Verdict, judged, p99_of
from penstock.models.serving.served_model import ServedModel

logger = logging.getLogger(__name__)

TARGET = "penstock_target"
"""The parameter of an answer that names the target."""

TARGET_HEADER = "penstock-target"
"""The header of an answer of a model's own application that names it."""

WINDOW = 60.0
"""Seconds of the windows of an alias without a guard."""

_MOST_SEQUENCES = 100_000
"""Sequences of an alias whose targets are remembered; beyond, those that began first are not."""

Find = Callable[[str, int], ServedModel]


class AliasModel:
    """The models behind an alias, for frontends: each request goes to one of them.

    `promotion` is what changes its shares, if anything does; `windows` are what its targets
    answered, `shadow` is what gets copies while `utilization`, of the machine's processor time,
    0 to 1, leaves some.
    """

    def __init__(self, alias: Alias, find: Find, utilization: Callable[[], float]) -> None:
        self.alias = alias
        self.promotion: Promotion | None = None
        self.shadow: ShadowTraffic | None = None
        self.windows: dict[str, TargetWindow] = {}
        self._find = find
        self._utilization = utilization
        self._sequences: dict[int | str, AliasTarget] = {}
        self._missed: set[str] = set()
        self._base_p99 = 0.0
        self._in_flight = 0
        self._last_end = float("-inf")  # of a request, on the clock of the event loop
        self.follow(alias)

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
            if self._serving(one) is not None:
                return one
        raise self._nothing()

    # -- requests -----------------------------------------------------------------------------

    def infer(self, request: InferenceRequest) -> ResponseStream:
        target, model = self._target(request)
        name = target.text
        stream = self._admitted(model.infer, request, name, model)

        def named(response: InferenceResponse) -> InferenceResponse:
            told = {**response.parameters, TARGET: name}
            return InferenceResponse(response.outputs, told, response.final, response.error)

        stream.add_transform(named)
        return stream

    def exchange(self, request: InferenceRequest) -> ResponseStream:
        target, model = self._target(request)
        stream = self._admitted(model.exchange, request, target.text, model)
        told = (TARGET_HEADER, target.text)

        def named(part: InferenceResponse) -> InferenceResponse:
            if isinstance(part, ExchangePart) and part.head is not None:
                head = part.head._replace(headers=(*part.head.headers, told))
                return replace(part, head=head)
            return part

        stream.add_transform(named)
        return stream

    def _admitted(
        self,
        admit: Callable[[InferenceRequest], ResponseStream],
        request: InferenceRequest,
        target: str,
        model: ServedModel,
    ) -> ResponseStream:
        """The answer of the target, which is counted, and kept for the shadow if that gets one."""
        shadow, began = self.shadow, time.monotonic()
        copied = None if shadow is None else shadow.take(request, target, model)
        self._in_flight += 1
        try:
            stream = admit(request)
        except Exception as error:
            self._ended(target, began, as_inference_error(error))
            if shadow is not None and copied is not None:
                shadow.refused(copied)
            raise
        stream.also_at_end(partial(self._ended, target, began))
        if shadow is not None and copied is not None:
            shadow.follow(copied, stream)
        return stream

    def _ended(self, target: str, began: float, error: InferenceError | None) -> None:
        """Count a request, unless its client cancelled it."""
        self._in_flight -= 1
        if self.shadow is not None:
            self._last_end = asyncio.get_running_loop().time()
        if isinstance(error, RequestCancelledError) and not isinstance(
            error, DeadlineExceededError
        ):
            return
        window = self.windows.get(target)
        if window is not None:  # else the target has gone meanwhile
            now = time.monotonic()
            window.add(now, now - began, failed=error is not None)

    def _target(self, request: InferenceRequest) -> tuple[AliasTarget, ServedModel]:
        """The target of a request; a sequence stays with its own until it ends."""
        sequence = request.correlation_id
        kept = self._sequences.get(sequence) if sequence else None
        if kept is not None and not request.sequence_start:
            if request.sequence_end:
                del self._sequences[sequence]
            _draw_of(request, self.alias).sides[self.alias.name] = kept.text
            return kept, self._find(kept.model, kept.version)
        target, model = self._drawn(request)
        if sequence and not request.sequence_end:
            if len(self._sequences) >= _MOST_SEQUENCES:
                del self._sequences[next(iter(self._sequences))]
            self._sequences[sequence] = target
        return target, model

    def _drawn(self, request: InferenceRequest) -> tuple[AliasTarget, ServedModel]:
        """The target by the draw of the whole request, which is made here if it has none yet.

        What was drawn once for this alias is drawn again, also where shares have changed since.
        """
        alias, draw = self.alias, _draw_of(request, self.alias)
        again = alias.target(draw.sides.get(alias.name, ""))
        target = again or alias.drawn(draw.number)
        model = None if target is None else self._serving(target)
        if model is None:  # its share goes to the others
            away = {one.text for one in alias.targets if self._serving(one) is None}
            target = alias.drawn(draw.number, lambda one: one.text not in away)
            model = None if target is None else self._serving(target)
        if target is None or model is None:
            raise self._nothing()
        draw.sides[alias.name] = target.text
        return target, model

    def _serving(self, target: AliasTarget) -> ServedModel | None:
        """The model of a target, if it serves; that it does not is told once."""
        try:
            model = self._find(target.model, target.version)
        except InferenceError as error:
            if target.text not in self._missed and target.weight > 0:
                self._missed.add(target.text)
                logger.warning(
                    "alias '%s': '%s' does not serve (%s): its share goes to the others",
                    self.alias.name,
                    target.text,
                    error.message,
                )
            return None
        self._missed.discard(target.text)
        return model

    def _nothing(self) -> UnavailableError:
        targets = ", ".join(f"'{one.text}'" for one in self.alias.targets)
        return UnavailableError(f"alias '{self.alias.name}': none of {targets} serves")

    def _pause(self, now: float) -> float:
        """Seconds for which there was no request, 0 while there is one."""
        return 0.0 if self._in_flight else now - self._last_end

    # -- changes ------------------------------------------------------------------------------

    def follow(self, alias: Alias) -> ShadowTraffic | None:
        """Draw from other shares from now on; sequences stay where they are.

        Its targets are judged anew. Returns the shadow that gets copies no more, to be closed.
        """
        seconds = WINDOW if alias.guard is None else alias.guard.window
        before, self.windows = self.windows, {}
        for one in alias.targets:
            window = before.get(one.text)
            kept = window is not None and window.seconds == seconds
            self.windows[one.text] = window if kept and window else TargetWindow(seconds)
        for one in alias.targets[1:]:
            self.windows[one.text].clear()
        if self.alias.targets[0].text != alias.targets[0].text:
            self._base_p99 = 0.0
        self.alias = alias
        self._missed.clear()
        return self._follow_shadow()

    def _follow_shadow(self) -> ShadowTraffic | None:
        shadow, wanted = self.shadow, self.alias.shadow
        if shadow is not None and shadow.shadow == wanted:
            return None
        self.shadow = (
            None
            if wanted is None
            else ShadowTraffic(self.alias.name, wanted, self._find, self._utilization, self._pause)
        )
        return shadow

    def judge(self, now: float) -> Verdict | None:
        """Why the alias is to go back, if its guard says so."""
        guard, (first, *others) = self.alias.guard, self.alias.targets
        if guard is None or not any(one.weight > 0 for one in others):
            return None
        if guard.max_p99_ratio:  # that of the first is remembered for when it has few requests
            self._base_p99 = p99_of(self.windows[first.text].answers(now)) or self._base_p99
        for one in others:
            if one.weight > 0:
                answers = self.windows[one.text].answers(now)
                verdict = judged(one.text, guard, answers, first.text, self._base_p99)
                if verdict is not None:
                    return verdict
        return None

    def advance(self, now: float) -> bool:
        """Take the next step of the promotion, if it is due; its share is then to be followed."""
        promotion = self.promotion
        if promotion is None:
            return False
        target = promotion.plan.target
        answers, guard = self.windows[target.text].answers(now), self.alias.guard
        by_latency = guard is not None and guard.max_p99_ratio
        answered = answers.latencies.count if by_latency else answers.requests
        return promotion.advance(now, answered, serves=self._serving(target) is not None)


def _draw_of(request: InferenceRequest, alias: Alias) -> Draw:
    """The draw of the request that this one is part of; a new one, kept, where there is none."""
    draw = request.scope.common_draw()
    if draw.number < 0:
        place = alias.place(request)
        draw.number = random() if place is None else place
    return draw
