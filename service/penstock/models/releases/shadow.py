"""`ShadowTraffic`: copies of an alias's requests for a model whose answers no client gets."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from random import random

from penstock.core.errors import (
    DeadlineExceededError,
    ExhaustedError,
    InferenceError,
    RequestCancelledError,
    as_inference_error,
)
from penstock.core.http_exchange import HttpExchange
from penstock.core.request import (
    ANY_VERSION,
    Draw,
    InferenceRequest,
    InferenceResponse,
    RequestScope,
)
from penstock.core.stream import ResponseStream
from penstock.core.tensor import Tensor
from penstock.models.releases.alias import Comparison, Shadow
from penstock.models.releases.comparison import Answer, Difference, first_difference
from penstock.models.releases.exchange_answer import as_outputs
from penstock.models.releases.window import LatencySketch
from penstock.models.serving.served_model import ServedModel

logger = logging.getLogger(__name__)

Find = Callable[[str, int], ServedModel]

SIDE_EFFECTS = "penstock.side_effects"
"""The parameter of a model's configuration that says that its requests must not be copied."""
NO_SHADOW = "penstock_no_shadow"
"""The parameter of a request that is not to be copied."""

_MOST_WAITING = 64
"""Copies that wait for their turn; while there are so many, others are dropped."""
_MOST_RUNNING = 1
_MOST_BYTES = 32 << 20
"""Bytes that copies and the answers to their originals hold together."""
_COPIED_AT_ONCE = 256 << 10
"""Bytes of inputs in memory that does not last, up to which they are copied."""
_OLDEST = 10.0
"""Seconds that a copy waits at most."""
_LONGEST = 120.0
"""Seconds that the answer to a copy may take."""
_PAUSE = 0.005
"""Seconds without a request of the alias after which a copy goes: longer than a client that calls
again and again takes between an answer and its next request, as it would meet the copy.
"""
_BUSY = 0.01
"""Seconds after which a copy that gives way to requests is looked at again."""
_FULL = 0.75
"""Of the machine's processor time in use, above which copies give way to requests."""
_SOMETIMES = 1.0
"""Seconds after which one goes all the same, so that requests without a pause are compared, too."""
_STATEFUL = "/v1/responses"
"""The exchanges whose answers an application keeps, and refers to in later ones."""
_COMPARED_AT_ONCE = 64 << 10
"""Bytes of answers that are compared on the event loop."""
_MOST_DIFFERENCES = 20
_TOO_LARGE = f"the answer has more than {_MOST_BYTES >> 20} MiB"


class Outcome(StrEnum):
    """What came of a request that was to be copied."""

    EQUAL = "equal"
    DIFFERENT = "different"
    FAILED = "failed"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True)
class Differing:
    """A request whose two answers differ: its id, when it was answered (seconds since the epoch),
    the target that answered it, and how.
    """

    id: str
    at: float
    target: str
    difference: Difference


@dataclass(slots=True)
class ShadowCounts:
    """What came of copies, how long both answers took, and the last differing requests."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    first: LatencySketch = field(default_factory=LatencySketch)
    second: LatencySketch = field(default_factory=LatencySketch)
    differing: deque[Differing] = field(default_factory=lambda: deque(maxlen=_MOST_DIFFERENCES))


class Copied:
    """A request to be copied, whose answer is kept until that of the copy is there.

    `size` are the bytes that are held for both; `too_large` is set where the answer was more than
    there was room for, and is kept no more.
    """

    __slots__ = ("began", "copy", "ended", "error", "responses", "size", "target", "too_large")

    def __init__(self, copy: InferenceRequest, target: str) -> None:
        self.copy = copy
        self.target = target
        self.began = time.monotonic()
        self.ended = 0.0
        self.responses: list[InferenceResponse] = []
        self.error: InferenceError | None = None
        self.size = sum(tensor.nbytes for tensor in copy.inputs.values())
        if copy.exchange is not None:
            self.size += len(copy.exchange.body)
        self.too_large = False

    @property
    def answer(self) -> Answer:
        """The answer of the target."""
        return Answer(self.responses, self.error, self.ended - self.began)


class ShadowTraffic:
    """Sends copies one after another, when the originals are answered; compares the answers.

    A copy is made only while few wait, and starts only while no other request waits for its model,
    the machine has processor time left, of which `utilization` tells the part in use, and the
    alias has had no request for a while, of which `pause` tells the seconds until a time of the
    event loop: so it is the first to go under load, and costs who calls no more than its making.
    """

    def __init__(
        self,
        alias: str,
        shadow: Shadow,
        find: Find,
        utilization: Callable[[], float],
        pause: Callable[[float], float],
    ) -> None:
        self.shadow = shadow
        self.counts = ShadowCounts()
        self._alias = alias
        self._find = find
        self._utilization = utilization
        self._pause = pause
        self._started = float("-inf")
        self._open = 0
        self._bytes = 0
        self._waiting: deque[Copied] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def take(self, request: InferenceRequest, target: str, model: ServedModel) -> Copied | None:
        """A copy of a request that goes to `target`, if it is to have one.

        To be made before the request is admitted: some of its inputs lie in memory that goes.
        """
        if random() * 100 >= self.shadow.percent or not self._copies(request, target, model):
            return None
        if self._open >= _MOST_WAITING or self._bytes >= _MOST_BYTES:
            self.counts.outcomes[Outcome.DROPPED] += 1
            return None
        inputs = _lasting(request.inputs)
        if inputs is None:
            return None
        shadow, scope = self.shadow, RequestScope()
        scope.draw = Draw(random(), shadowed=True)
        version = "" if shadow.version == ANY_VERSION else str(shadow.version)
        copy = request._replace(
            model_name=shadow.model, model_version=version, inputs=inputs, scope=scope
        )
        copied = Copied(copy, target)
        self._open += 1
        self._bytes += copied.size
        return copied

    def follow(self, copied: Copied, stream: ResponseStream) -> None:
        """Keep the answer, and send the copy once that has ended."""
        stream.add_transform(partial(self._kept, copied))
        stream.also_at_end(partial(self._answered, copied))

    def refused(self, copied: Copied) -> None:
        """The request was not admitted: there is nothing to compare."""
        self._forget(copied)

    async def close(self) -> None:
        """Drop what waits, and cancel what runs."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._waiting:
            self._drop(self._waiting.popleft())
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # -- which ones ---------------------------------------------------------------------------

    def _copies(self, request: InferenceRequest, target: str, model: ServedModel) -> bool:
        """Whether a request may be copied: see docs/releases.md."""
        draw = request.scope.draw
        return (
            not request.correlation_id
            and target != self.shadow.text
            and not request.output_places
            and not request.parameters.get(NO_SHADOW)
            and not (draw is not None and draw.shadowed)
            and (request.exchange is None or _is_stateless(request.exchange))
            and not _has_effects(model)
        )

    # -- sending ------------------------------------------------------------------------------

    def _kept(self, copied: Copied, response: InferenceResponse) -> InferenceResponse:
        """Keep a response, which passes unchanged; an answer without room is kept no more."""
        if not copied.too_large:
            size = response.size
            if self._bytes + size > _MOST_BYTES:
                size = -copied.answer.size
                copied.responses.clear()
                copied.too_large = True
            else:
                copied.responses.append(response)
            copied.size += size
            self._bytes += size
        return response

    def _answered(self, copied: Copied, error: InferenceError | None) -> None:
        copied.ended = time.monotonic()
        left = isinstance(error, RequestCancelledError)
        if left and not isinstance(error, DeadlineExceededError):
            self._drop(copied)
            return
        copied.error = error
        if self._closed or copied.too_large:
            self._drop(copied)
            return
        self._waiting.append(copied)
        self._later(_PAUSE)

    def _later(self, seconds: float) -> None:
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._start)

    def _start(self) -> None:
        self._timer = None
        while self._waiting and len(self._tasks) < _MOST_RUNNING:
            if time.monotonic() - self._waiting[0].ended > _OLDEST:
                self._drop(self._waiting.popleft())
                continue
            model = self._model()
            if self._gives_way(model):
                self._later(_BUSY)
                return
            copied = self._waiting.popleft()
            self._started = asyncio.get_running_loop().time()
            task = asyncio.get_running_loop().create_task(self._run(copied, model))
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _gives_way(self, model: ServedModel | None) -> bool:
        """Whether copies are to wait: a model that is gone answers no request either."""
        if model is not None and _is_busy(model):
            return True
        now = asyncio.get_running_loop().time()
        if now - self._started >= _SOMETIMES:
            return False
        return self._pause(now) < _PAUSE or self._utilization() > _FULL

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._waiting:
            self._later(0.0)

    def _model(self) -> ServedModel | None:
        try:
            return self._find(self.shadow.model, self.shadow.version)
        except InferenceError:
            return None

    async def _run(self, copied: Copied, model: ServedModel | None) -> None:
        outcome = Outcome.DROPPED
        try:
            if model is None:
                outcome = Outcome.FAILED
            elif not _has_effects(model):
                outcome = await self._compared(copied, await _answer(model, copied.copy))
        except Exception:  # a bug must be logged, and is no business of clients
            logger.exception("the shadow of alias '%s' failed", self._alias)
            outcome = Outcome.FAILED
        finally:
            self.counts.outcomes[outcome] += 1
            self._forget(copied)

    async def _compared(self, copied: Copied, second: Answer) -> Outcome:
        first, how = copied.answer, self.shadow.compare
        if first.error is None:
            self.counts.first.add(first.seconds)
        if second.error is None:
            self.counts.second.add(second.seconds)
        if first.size + second.size <= _COMPARED_AT_ONCE:
            found = _difference(first, second, how)
        else:
            found = await asyncio.to_thread(_difference, first, second, how)
        if found is None:
            return Outcome.EQUAL
        differing = Differing(copied.copy.id, time.time(), copied.target, found)
        self.counts.differing.append(differing)
        failed = second.error is not None and first.error is None
        return Outcome.FAILED if failed else Outcome.DIFFERENT

    def _drop(self, copied: Copied) -> None:
        self.counts.outcomes[Outcome.DROPPED] += 1
        self._forget(copied)

    def _forget(self, copied: Copied) -> None:
        self._open -= 1
        self._bytes -= copied.size


def _difference(first: Answer, second: Answer, how: Comparison) -> Difference | None:
    return first_difference(as_outputs(first), as_outputs(second), how)


async def _answer(model: ServedModel, request: InferenceRequest) -> Answer:
    """What a model answers; an error of its own is part of that."""
    began = time.monotonic()
    responses: list[InferenceResponse] = []
    problem: InferenceError | None = None
    room = _MOST_BYTES
    try:
        admit = model.infer if request.exchange is None else model.exchange
        stream = admit(request)
        try:
            async with asyncio.timeout(_LONGEST):
                async for response in stream:
                    room -= response.size
                    if room < 0:
                        responses.clear()
                        problem = ExhaustedError(_TOO_LARGE)
                        break
                    responses.append(response)
                    problem = response.error or problem
        finally:
            stream.close()
    except TimeoutError:
        problem = DeadlineExceededError(f"there was no answer within {_LONGEST:g} s")
    except InferenceError as error:
        problem = as_inference_error(error)
    return Answer(responses, problem, time.monotonic() - began)


def _lasting(inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor] | None:
    """The inputs in memory that lasts; `None` if they are too many to copy, or a client's.

    Memory of clients is written again when they have their answer; that of large messages may be
    overwritten by the model that gets them.
    """
    passing = [tensor for tensor in inputs.values() if tensor.shared is not None]
    if not passing:
        return inputs
    if sum(tensor.nbytes for tensor in passing) > _COPIED_AT_ONCE:
        return None
    if any(one.shared is not None and one.shared.region.number > 0 for one in passing):
        return None
    return {
        name: one
        if one.shared is None
        else Tensor(one.datatype, one.shape, bytes(one.buffer), count=one.count)
        for name, one in inputs.items()
    }


def _has_effects(model: ServedModel) -> bool:
    return model.config.parameter(SIDE_EFFECTS) == "true"


def _is_stateless(exchange: HttpExchange) -> bool:
    return exchange.method == "POST" and not exchange.path.startswith(_STATEFUL)


def _is_busy(model: ServedModel) -> bool:
    """Whether requests wait for a model; not known of one that is not loaded."""
    statistics = getattr(model, "statistics", None)
    return statistics is not None and statistics.pending > 0
