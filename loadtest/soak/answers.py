"""The right answers: formulas of the models, and requests that check their own messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from loadtest.soak.ledger import CallError, WrongAnswerError
from loadtest.soak.wire import Array, message, output
from penstock.protocol import grpc_service_pb2 as pb

_F = np.float32
FORMULAS: Mapping[str, Callable[[Array], Array]] = {
    "echo": lambda x: x,
    "plain": lambda x: x * _F(2) + _F(1),
    "victim": lambda x: x + _F(7),
    "frozen": lambda x: x + _F(5),
    "coming": lambda x: x + _F(2),
    "cached": lambda x: x * _F(3),
    "batched": lambda x: x - _F(3),
    "coro": lambda x: x - _F(1),
    "caller": lambda x: x * _F(3) + _F(1),
    "asker": lambda x: (x * _F(2) + _F(1)) + (x + _F(7)),
    "chain": lambda x: (x * _F(2) + _F(1)) + _F(7),
    "steps": lambda x: (x - _F(3)) - _F(3),
}
"""Answers of the models to their input `IN`, by name."""

DECOUPLED = "count", "repeat"
"""Models that answer a request of a stream with numbers."""


class StreamRequest:
    """One request of a stream, and its messages so far.

    A decoupled model repeats `count` numbers, another one applies its formula to `x`.
    """

    def __init__(self, model: str, count: int, x: Array) -> None:
        self.model = model
        self.decoupled = model in DECOUPLED
        self.done = False
        self.wrong = self.error = ""
        self._numbers = list(range(count))
        self._left = list(self._numbers)
        self._x = x

    def request(self, id: str) -> pb.ModelInferRequest:
        if not self.decoupled:
            return message(self.model, {"IN": self._x}, id)
        numbers = np.array(self._numbers, np.int32)
        delays = np.full(len(numbers), 2, np.uint32)
        wait = np.zeros(1, np.uint32)
        request = message(self.model, {"IN": numbers, "DELAY": delays, "WAIT": wait}, id)
        request.parameters["triton_enable_empty_final_response"].bool_param = True
        return request

    def take(self, response: pb.ModelStreamInferResponse) -> None:
        """Compare a message with what must come next."""
        reply = response.infer_response
        if response.error_message:
            self.error = response.error_message
        elif self.done:
            self.wrong = "a message behind the last one"
        elif self.decoupled:
            self._take_number(reply)
        else:
            self.done = True
            compare(output(reply, "OUT"), FORMULAS[self.model](self._x))

    def _take_number(self, reply: pb.ModelInferResponse) -> None:
        if reply.outputs:
            found = output(reply, "OUT")[0]
            if not self._left or self._left.pop(0) != found:
                self.wrong = f"{found} out of its turn"
        if reply.parameters["triton_final_response"].bool_param:
            self.done = True
            if self._left:
                self.wrong = f"ended with {len(self._left)} responses missing"


def check_block(response: object, number: int) -> None:
    if not isinstance(response, pb.ModelStreamInferResponse):
        raise CallError("end", "the stream ended")
    if response.error_message:
        raise CallError("in stream", response.error_message)
    compare(output(response.infer_response, "OUT"), np.full(1024, number, np.int32))


def compare(found: Array, wanted: Array) -> None:
    if not np.array_equal(found, wanted):
        raise WrongAnswerError(f"{found.ravel()[:4]} {found.shape} for {wanted.ravel()[:4]}")


def compare_texts(found: str, wanted: str) -> None:
    if found != wanted:
        raise WrongAnswerError(f"{found!r} for {wanted!r}")
