"""The requests that a model process is answering, by their numbers on its link."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from penstock.core.buffer import Buffer
from penstock.core.errors import InferenceError, error_from_code
from penstock.core.request import InferenceResponse
from penstock.hosting.link.memory import SharedMemory
from penstock.hosting.link.messages import Kind, pack_request, unpack_next_response, unpack_response
from penstock.hosting.link.response_sender import Send
from penstock.hosting.link.tensor_codec import NO_PLACES, Places
from penstock.inflight.inference import Inference


class OpenRequests:
    """What was sent and is not answered in full; passes on what the process says about it.

    Which responses readers have taken is told once per turn of the loop, for all at once.
    """

    def __init__(self, memory: SharedMemory, send: Send) -> None:
        self._memory = memory
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, Inference] = {}
        self._coming_again: dict[Inference, int] = {}
        self._taken: dict[int, int] = {}
        self._last = 0

    @property
    def open(self) -> Iterable[Inference]:
        return self._open.values()

    def pack(self, batch: Sequence[Inference]) -> tuple[list[Any], list[Buffer]]:
        """The requests of a batch as headers and payload; each gets its number."""
        headers, payload = [], []
        for inference in batch:
            header, buffers = pack_request(
                self._accept(inference), inference.request, self._memory.exchange
            )
            headers.append(header)
            payload += buffers
        return headers, payload

    def response(self, header: Any, payload: memoryview) -> None:
        """The process has sent a response."""
        number, packed = header
        places = self._places(number)
        self._pass_on(number, unpack_response(packed, payload, self._memory.exchange, places))

    def responses(self, answers: Iterable[tuple[int, Any]], payload: memoryview) -> None:
        """The process has sent several at once."""
        at = 0
        for number, packed in answers:
            places = self._places(number)
            response, at = unpack_next_response(packed, payload, at, self._memory.exchange, places)
            self._pass_on(number, response)

    def _places(self, number: int) -> Places:
        """Where the request wants its outputs."""
        inference = self._open.get(number)
        return NO_PLACES if inference is None else inference.request.output_places

    def _pass_on(self, number: int, response: InferenceResponse) -> None:
        # Unpacked in any case, so that the blocks of its tensors become free again.
        inference = self._open.get(number)
        if inference is None:  # it was cancelled; the process has not heard of it yet
            return
        if response.final:
            del self._open[number]
            inference.from_backend = response.error is not None
        inference.stream.send(response)

    def end(self, number: Any, _: memoryview) -> None:
        """The process has no more responses for this one."""
        if inference := self._open.pop(number, None):
            inference.stream.end()

    def error(self, header: Any, _: memoryview) -> None:
        """The process cannot answer this one."""
        number, code, message = header
        if inference := self._open.pop(number, None):
            inference.fail(error_from_code(code, message), from_backend=True)

    def reschedule(self, number: Any, _: memoryview) -> None:
        """The process has not done with this one, and wants it again."""
        if inference := self._open.get(number):
            inference.rescheduled = True
            self._coming_again[inference] = number

    def fail_all(self, error: InferenceError) -> None:
        """Answer everything still open with an error."""
        inferences, self._open = self._open, {}
        self._coming_again.clear()
        for inference in inferences.values():
            inference.fail(error, from_backend=True)

    def release(self, batch: Sequence[Inference]) -> None:
        """These will be sent again, to another process."""
        gone = set(map(id, batch))
        self._open = {n: i for n, i in self._open.items() if id(i) not in gone}

    def _accept(self, inference: Inference) -> int:
        """Give the request a number on this link, and hear of its reader's moves.

        One that comes again has both already.
        """
        if (known := self._coming_again.pop(inference, None)) is not None:
            return known
        self._last += 1
        number = self._last
        self._open[number] = inference
        inference.stream.connect(partial(self._left, number), partial(self._took, number))
        return number

    def _left(self, number: int) -> None:
        if (inference := self._open.pop(number, None)) is not None:
            self._coming_again.pop(inference, None)
            self._send(Kind.CANCEL, number)

    def _took(self, number: int, count: int) -> None:
        if not self._taken:
            self._loop.call_soon(self._tell_taken)
        self._taken[number] = self._taken.get(number, 0) + count

    def _tell_taken(self) -> None:
        taken, self._taken = self._taken, {}
        self._send(Kind.TAKEN, list(taken.items()))
