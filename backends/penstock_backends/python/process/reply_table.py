"""Table of the requests in flight in a model process, for credit and cancellation by number."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.core.errors import RequestCancelledError
from penstock.core.request import InferenceRequest
from penstock.core.timeline import NOTHING_RECORDED, Timeline
from penstock.hosting.link.messages import Cancel, Kind, PackedRequest, Taken, unpack_request
from penstock_backends.python.process.model_link import ModelLink
from penstock_backends.python.process.replies import PendingReply, ReplyPolicy


class ReplyTable:
    """Replies that are not complete, by the number of their request on the link."""

    def __init__(self, link: ModelLink) -> None:
        self._link = link
        self._replies: dict[int, PendingReply] = {}
        self._cancelled: set[int] = set()
        """Requests that were cancelled before they arrived."""
        self._stopped: set[int] = set()
        """Requests that were stopped before they arrived."""
        self._timelines: dict[int, Timeline] = {}
        """Those of traced requests, by the ids of the server's spans."""
        self._latest = 0
        link.on(Kind.TAKEN, self._on_taken)
        link.on(Kind.CANCEL, self._on_cancel)
        link.on(Kind.STOP, self._on_stop)

    def accept(
        self, packed: Sequence[PackedRequest], payload: memoryview, policy: ReplyPolicy
    ) -> list[tuple[PendingReply, InferenceRequest]]:
        """Unpack the requests of a batch, each with its reply.

        Cancelled and stopped requests are left out, unless the model has to see every request of a
        sequence. Readers of stopped ones get CANCELLED.
        """
        accepted: list[tuple[PendingReply, InferenceRequest]] = []
        at = 0
        for header in packed:
            number, request, at = unpack_request(header, payload, at, self._link.codec)
            reply = self._open(number, request, policy)
            if policy.sequences or not (reply.cancelled or reply.stopped):
                accepted.append((reply, request))
            elif reply.cancelled:
                reply.send_recorded()
            else:
                reply.refuse(RequestCancelledError())
        return accepted

    def forget(self, number: int) -> None:
        """The reply is complete."""
        reply = self._replies.pop(number, None)
        if reply is not None and reply.timeline is not None:
            self._timelines.pop(reply.timeline.span_id, None)

    def send_recorded(self, timeline: Timeline) -> None:
        """Send what is recorded of a request that is over, for which the server waits."""
        recorded = timeline.take_recorded() or NOTHING_RECORDED
        self._link.send(Kind.RECORDED, (timeline.on_link, *recorded))

    def find_timeline(self, trace_id: int, span_id: int) -> Timeline | None:
        """The timeline of the request in flight with this span, or else of one in this trace."""
        if (timeline := self._timelines.get(span_id)) is not None:
            return timeline
        for timeline in list(self._timelines.values()):
            if timeline.trace.trace_id == trace_id:
                return timeline
        return None

    def _open(self, number: int, request: InferenceRequest, policy: ReplyPolicy) -> PendingReply:
        """The reply to a request; a rescheduled request keeps the one it has."""
        if request.scope.timeline is not None:
            self._timelines[request.scope.timeline.span_id] = request.scope.timeline
        if (reply := self._replies.get(number)) is not None:
            reply.timeline = request.scope.timeline
            return reply
        wanted = request.requested_outputs or policy.outputs
        reply = PendingReply(
            self._link,
            number,
            wanted,
            policy,
            self.forget,
            request.output_places,
            request.scope.timeline,
        )
        # A rescheduled request without a reply was cancelled meanwhile.
        rescheduled = number <= self._latest
        # In this order, since another thread may read the cancellation meanwhile.
        self._replies[number] = reply
        self._latest = max(self._latest, number)
        if rescheduled or number in self._cancelled:
            self._cancelled.discard(number)
            self.forget(number)
            reply.cancelled = True
        elif number in self._stopped:
            self._stopped.discard(number)
            reply.stop()
        return reply

    def _on_taken(self, header: Taken, _: memoryview) -> None:
        for number, count in header:
            if reply := self._replies.get(number):
                reply.acknowledge(count)

    def _on_cancel(self, header: Cancel, _: memoryview) -> None:
        number = header[0]
        self._cancelled.add(number)  # first of all: another thread may accept its batch right now
        reply = self._replies.get(number)
        self.forget(number)
        if reply is not None:
            reply.cancel()
        if reply is not None or number <= self._latest:
            self._cancelled.discard(number)

    def _on_stop(self, number: int, _: memoryview) -> None:
        self._stopped.add(number)  # first of all, as above
        reply = self._replies.get(number)
        if reply is not None:
            reply.stop()
        if reply is not None or number <= self._latest:
            self._stopped.discard(number)
