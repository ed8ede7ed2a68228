"""`InFlight`: the batches and requests that a model process was sent and has not finished.

With it stands what it counts and times: how many batches the process may have, an execution that
takes too long, responses that readers have taken, tokens reported of requests that are over.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from math import inf
from typing import Any, Final

from penstock.core.buffer import Buffer
from penstock.core.errors import (
    InferenceError,
    RequestCancelledError,
    as_inference_error,
    error_from_code,
)
from penstock.core.flow_control import WINDOW, Window
from penstock.core.request import InferenceResponse, ReportUsage
from penstock.core.stream import ResponseStream
from penstock.core.timeline import Timeline
from penstock.hosting.link.link import Link
from penstock.hosting.link.memory import SharedMemory
from penstock.hosting.link.messages import (
    Done,
    Error,
    Executed,
    Kind,
    NumberedResponse,
    Part,
    Recorded,
    Usage,
    pack_exchange,
    pack_request,
    unpack_next_response,
    unpack_part,
    unpack_response,
)
from penstock.hosting.link.tensor_codec import NO_PLACES
from penstock.hosting.parent.recordings import Recordings
from penstock.inflight.inference import Inference

Batch = Sequence[Inference]

_MOST_UNREAD = 4096
"""Responses that a process may have sent beyond what was read: more than any window of ours."""


class InFlight:
    """Sends batches over the link to a model process, and passes its responses on.

    A `serial` process gets one batch at a time, or up to `ahead` while it is quick; any other gets
    every batch at once. An execution longer than `limit` seconds is reported to the `on_late`
    callback of `attach`, once. Responses beyond twice the `window` break the protocol.

    Outlives the process: `lose` keeps the batches that a dead process had not begun, and `resend`
    gives them to the next one. Numbers on the link are never used twice, so that a message of a
    dead process that is still read finds nothing.
    """

    def __init__(
        self, *, serial: bool, ahead: int, limit: float | None, window: Window = WINDOW
    ) -> None:
        self._serial = serial
        self._most_unread = max(_MOST_UNREAD, 2 * window.responses)
        self._window = BatchWindow(serial=serial, most=ahead)
        self._timer = None if limit is None else ExecutionTimer(limit)
        self._link: Link | None = None
        self._memory: SharedMemory
        self._batches: dict[int, Batch] = {}
        self._last_batch = 0
        self._to_resend: list[Batch] = []
        self._on_room: Callable[[], None] | None = None
        self._requests: dict[int, Inference] = {}
        self._last_request = 0
        self._rescheduled: dict[Inference, int] = {}
        self._credit = CreditReturns()
        self._recordings = Recordings()
        self._late_usage = LateUsage()

    def attach(self, link: Link, memory: SharedMemory, on_late: Callable[[], None]) -> None:
        """Use the link to a process that has just started."""
        self._link, self._memory = link, memory
        self._window.reset()
        if self._timer is not None:
            self._timer.attach(on_late)
        self._credit.attach(link)

    @property
    def executing(self) -> bool:
        """Whether the process has a batch that it has not executed."""
        return bool(self._batches)

    def is_waiting(self) -> bool:
        """Whether the process still has requests to answer or batches to execute."""
        return bool(self._requests or self._batches)

    @property
    def requests(self) -> Iterable[Inference]:
        """Requests that are not answered in full, those kept for the next process included."""
        return chain(self._requests.values(), *self._to_resend)

    @property
    def current(self) -> Batch:
        """The batch that is executing and may wait for other models; none if batches overlap."""
        return next(iter(self._batches.values()), ()) if self._serial else ()

    # -- to the process -----------------------------------------------------------------------

    def send(self, batch: Batch, on_room: Callable[[], None]) -> None:
        """Send a batch; `on_room` is called once the process may have another.

        Exchanges over HTTP are sent alone, and at once: they are no part of an execution.
        """
        link = self._link
        assert link is not None
        for inference in batch:
            if inference.request.exchange is not None:
                batch = self._send_exchanges(link, batch)
                break
        if not batch:
            on_room()
            return
        number = self._last_batch = self._last_batch + 1
        try:
            headers, payload = self._pack(batch)
        except Exception:  # of a request that cannot be packed, which fails the batch
            self._forget(batch)
            raise
        # A batch ahead of its turn must not wake a process that waits for another model.
        post = link.hold if self._batches else link.send
        post(Kind.EXECUTE, (number, headers), payload)
        self._batches[number] = batch
        if self._timer is not None and len(self._batches) == 1:
            self._timer.restart()
        self._on_room = on_room
        self._make_room()

    def _send_exchanges(self, link: Link, batch: Batch) -> Batch:
        """Send the exchanges of a batch; the rest of it."""
        rest: list[Inference] = []
        for inference in batch:
            if inference.request.exchange is None:
                rest.append(inference)
                continue
            inference.statistics.executed(inference.rows, 0, 0, 0)
            number = self._number(inference)
            header, payload = pack_exchange(number, inference.request)
            link.send(Kind.EXCHANGE, header, payload)
        return rest

    def resend(self) -> None:
        """Send the batches that the process before this one had not begun.

        So a request is executed once, or not at all, of which its client is notified.
        """
        batches, self._to_resend = self._to_resend, []
        for batch in batches:
            if wanted := [inference for inference in batch if not inference.abandoned]:
                self._resend(wanted)

    def _resend(self, batch: Batch) -> None:
        try:
            self.send(batch, _ignore)
        except Exception as error:  # of a request that cannot be packed any more
            for inference in batch:
                inference.fail(as_inference_error(error))

    def _forget(self, batch: Batch) -> None:
        """Drop the numbers of a batch that was not sent."""
        gone = {id(inference) for inference in batch}
        for number in [n for n, one in self._requests.items() if id(one) in gone]:
            del self._requests[number]
            self._recordings.end(number)

    def _pack(self, batch: Batch) -> tuple[list[Any], list[Buffer]]:
        """Headers and payload of the requests of a batch; each request gets its number."""
        headers, payload = [], []
        for inference in batch:
            number = self._number(inference)
            header, buffers = pack_request(number, inference.request, self._memory.codec)
            headers.append(header)
            payload += buffers
        return headers, payload

    def _number(self, inference: Inference) -> int:
        """A new number, and callbacks of the reader; a rescheduled request has both already."""
        if (known := self._rescheduled.pop(inference, None)) is not None:
            return known
        number = self._last_request = self._last_request + 1
        self._requests[number] = inference
        if inference.timeline is not None:
            self._recordings.begin(number, inference.timeline)
        inference.stream.connect(
            partial(self._cancel, number), partial(self._credit.take, number), self._stop
        )
        return number

    def _cancel(self, number: int) -> None:
        """The reader has closed the stream of responses."""
        if (inference := self._requests.pop(number, None)) is not None:
            self._rescheduled.pop(inference, None)
            if self._link is not None:
                self._link.send(Kind.CANCEL, (number, time.monotonic_ns()))
                self._recordings.cancelled(number)
                if inference.on_usage is not None:
                    self._late_usage.cancelled(number, inference.on_usage)

    def _stop(self, stream: ResponseStream) -> None:
        """Forward a stop to the process; a request that it has not begun is cancelled here."""
        found = (n for n, inference in self._requests.items() if inference.stream is stream)
        number = next(found, None)
        link = self._link
        if number is None or link is None or self._is_ahead(self._requests[number]):
            stream.abort(RequestCancelledError())
        else:
            link.send(Kind.STOP, number)

    def _is_ahead(self, inference: Inference) -> bool:
        """Whether the request is in a batch that was sent ahead of its turn."""
        ahead = list(self._batches.values())[1:] if self._serial else ()
        return any(inference in batch for batch in ahead)

    # -- from the process ---------------------------------------------------------------------

    def on_executed(self, header: Executed, payload: memoryview) -> None:
        """A batch was executed; all its responses are in the same message."""
        number, begun, input_end, output_start, waited, responses = header
        self._done(number, begun, input_end, output_start, waited)
        self.on_responses(responses, payload)

    def on_done(self, header: Done, _: memoryview) -> None:
        """A batch was executed; its responses are sent in messages of their own."""
        self._done(*header)

    def _done(
        self, number: int, begun: int, input_end: int, output_start: int, waited: int
    ) -> None:
        """Times are from `time.monotonic_ns`, which both processes share.

        `waited` nanoseconds of them the model waited for other models that it had called.
        """
        if self._link is not None:
            self._link.release()
        batch = self._batches.pop(number, None)
        if batch is None:
            return
        rows, statistics, now = 0, batch[0].statistics, time.monotonic_ns()
        decoupled = statistics.decoupled
        for inference in batch:
            rows += inference.rows
            inference.compute_start = begun
            inference.compute_input_end = input_end
            if self._serial or decoupled:  # else the model may go on computing the only answer
                inference.compute_output_start = output_start
            if decoupled:
                inference.compute_end = now
            if inference.wait is not None:  # a thread of the model may still send the response
                inference.wait.end()
        output = max(now - output_start, 0)  # on its way from there to here
        statistics.executed(rows, input_end - begun, output_start - input_end, output)
        if self._timer is not None:
            self._timer.follow(executing=bool(self._batches))
        self._window.executed(output_start - begun - waited)
        self._make_room()

    def on_response(self, header: NumberedResponse, payload: memoryview) -> None:
        """One response to one request."""
        number, packed = header
        inference = self._requests.get(number)
        places = NO_PLACES if inference is None else inference.request.output_places
        response = unpack_response(packed, payload, self._memory.codec, places)
        self._pass_on(number, inference, response)

    def on_responses(self, responses: Iterable[NumberedResponse], payload: memoryview) -> None:
        """Several responses in one message."""
        at = 0
        for number, packed in responses:
            inference = self._requests.get(number)
            places = NO_PLACES if inference is None else inference.request.output_places
            response, at = unpack_next_response(packed, payload, at, self._memory.codec, places)
            self._pass_on(number, inference, response)

    def on_parts(self, parts: Iterable[Part], payload: memoryview) -> None:
        """Parts of answers to exchanges."""
        at = 0
        for header in parts:
            part = unpack_part(header, payload, at)
            at += len(part.body)
            self._pass_on(header[0], self._requests.get(header[0]), part)

    def on_end(self, number: int, _: memoryview) -> None:
        """A request gets no more responses."""
        if inference := self._leave(number):
            inference.stream.end()

    def on_error(self, header: Error, _: memoryview) -> None:
        """A request failed."""
        number, code, message = header
        if inference := self._leave(number):
            inference.fail(error_from_code(code, message), from_backend=True)

    def on_recorded(self, header: Recorded, _: memoryview) -> None:
        """What the process has recorded of a traced request, answered next or cancelled."""
        self._recordings.add(header)

    def on_recording(self, number: int, _: memoryview) -> None:
        """The process goes on recording after the last response, which is next."""
        self._recordings.goes_on(number)

    def on_usage(self, header: Usage, _: memoryview) -> None:
        """The tokens of a request so far."""
        number, prompt, cached, generated = header
        inference = self._requests.get(number)
        if inference is None:
            self._late_usage.add(number, prompt, cached, generated)
        elif inference.on_usage is not None:
            inference.on_usage(prompt, cached, generated)

    def timeline_of(self, number: int) -> Timeline | None:
        """The timeline of a request that is not answered in full, if it is traced."""
        inference = self._requests.get(number)
        return None if inference is None else inference.timeline

    def on_reschedule(self, number: int, _: memoryview) -> None:
        """The model wants a request to be scheduled again, under the same number."""
        if inference := self._requests.get(number):
            inference.rescheduled = True
            self._rescheduled[inference] = number

    def _pass_on(
        self, number: int, inference: Inference | None, response: InferenceResponse
    ) -> None:
        """Give a response to its request.

        It is unpacked in any case, so that the blocks of its tensors become free again.
        """
        if inference is None:  # cancelled, and the process has not read that yet
            if response.final:
                self._recordings.answered(number)
            return
        if response.final:
            self._leave(number)
            inference.from_backend = response.error is not None
        elif inference.stream.backlog > self._most_unread:
            raise ValueError(f"more than {self._most_unread} responses that nobody has read")
        inference.stream.send(response)

    def _leave(self, number: int) -> Inference | None:
        """Remove a request that is answered in full; `None` if it was cancelled here meanwhile.

        The trace of that one ends, too: with its last message the process has forgotten it, and
        tells nothing of the cancellation.
        """
        inference = self._requests.pop(number, None)
        if inference is None or inference.timeline is not None:
            self._recordings.answered(number)
        return inference

    # -- the end of the process ---------------------------------------------------------------

    def lose(self, error: InferenceError) -> None:
        """The process is dead: keep the batches that it had not begun, fail all other requests.

        The first batch of those in flight is not kept, since reading it may be what ended the
        process; nor is any of a backend that overlaps its batches.
        """
        if self._serial and self._batches:
            begun = self._memory.begun
            ahead = [number for number in list(self._batches)[1:] if number > begun]
            self._to_resend += [self._batches.pop(number) for number in ahead]
        kept = {id(inference) for batch in self._to_resend for inference in batch}
        lost = [one for one in self._requests.values() if id(one) not in kept]
        self._link = None
        self._credit.detach()
        self._requests = {}
        self._recordings.clear()
        self._late_usage.clear()
        self._rescheduled.clear()
        for inference in lost:
            inference.fail(error, from_backend=True)
        self._batches.clear()
        if self._timer is not None:
            self._timer.stop()
        self._make_room()

    def fail_all(self, error: InferenceError) -> None:
        """There will be no process any more: fail every request, the kept ones too."""
        self.lose(error)
        batches, self._to_resend = self._to_resend, []
        for batch in batches:
            for inference in batch:
                inference.fail(error)

    # -- room for another batch ---------------------------------------------------------------

    def _make_room(self) -> None:
        on_room = self._on_room
        if on_room is not None and len(self._batches) < self._window.size:
            self._on_room = None
            on_room()


def _ignore() -> None:
    """The scheduler that sent this batch was called back when the first process died."""


_AHEAD: Final = 300_000
"""Nanoseconds of executions that a process may have queued; waking it costs as much as some."""


class BatchWindow:
    """One batch for a `serial` process, or up to `most` while its executions are quick.

    It then finds the next one without being woken for it. Any other process may have any number.
    A process with fewer than `size` batches may have one more.
    """

    __slots__ = ("_most", "_serial", "size")

    def __init__(self, *, serial: bool, most: int) -> None:
        self._serial = serial
        self._most = most
        self.size = 1.0
        self.reset()

    def reset(self) -> None:
        """Of a process that has just started, nothing is known."""
        self.size = 1.0 if self._serial else inf

    def executed(self, duration: int) -> None:
        """An execution took so many nanoseconds: a slow one closes the window at once, quick ones
        open it step by step.
        """
        if self._serial:
            fitting = _AHEAD // max(duration, 1)
            self.size = max(1, min(fitting, self.size + 1, self._most))


class ExecutionTimer:
    """Calls back once, `limit` seconds after `restart`, unless it is restarted or stopped."""

    __slots__ = ("_limit", "_on_late", "_timer")

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._on_late: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def attach(self, on_late: Callable[[], None]) -> None:
        """Tell the owner of a process that has just started."""
        self._on_late = on_late

    def restart(self) -> None:
        """Another execution is the first one now."""
        if self._on_late is None:
            return
        self.stop()
        self._timer = asyncio.get_running_loop().call_later(self._limit, self._on_late)

    def follow(self, *, executing: bool) -> None:
        """An execution is over, and the next one may have begun."""
        if executing:
            self.restart()
        else:
            self.stop()

    def stop(self) -> None:
        """Nothing executes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class CreditReturns:
    """Counts responses that were taken, and sends them as credit once per turn of the loop."""

    __slots__ = ("_link", "_loop", "_taken")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._link: Link | None = None
        self._taken: dict[int, int] = {}

    def attach(self, link: Link) -> None:
        """Send by the link to a process that has just started."""
        self._loop = asyncio.get_running_loop()
        self._link = link

    def detach(self) -> None:
        """The process is gone: drop the credit that was to be returned."""
        self._link = None

    def take(self, number: int, count: int) -> None:
        """The reader of the request with this number has taken responses."""
        if not self._taken and self._loop is not None:
            self._loop.call_soon(self._send)
        self._taken[number] = self._taken.get(number, 0) + count

    def _send(self) -> None:
        taken, self._taken = self._taken, {}
        if self._link is not None:
            self._link.send(Kind.TAKEN, list(taken.items()))


class LateUsage:
    """Reports of tokens of the `MOST` latest cancelled requests, by their numbers on the link.

    The process reports what it had made of a request when it learns that the client has left. It
    learns that between two steps of its engine, which may take seconds, and of a request that it
    had not begun with, it reports nothing.
    """

    MOST: Final = 4096
    """More than an engine runs at once, so that those cancelled in one step are all among them."""

    def __init__(self) -> None:
        self._reports: OrderedDict[int, ReportUsage] = OrderedDict()

    def cancelled(self, number: int, report: ReportUsage) -> None:
        """The process is told that a request is cancelled."""
        self._reports[number] = report
        if len(self._reports) > self.MOST:
            self._reports.popitem(last=False)

    def add(self, number: int, prompt: int, cached: int, generated: int) -> None:
        """The process has reported tokens of a request that is not in flight."""
        if (report := self._reports.get(number)) is not None:
            report(prompt, cached, generated)

    def clear(self) -> None:
        """The process is gone."""
        self._reports.clear()
