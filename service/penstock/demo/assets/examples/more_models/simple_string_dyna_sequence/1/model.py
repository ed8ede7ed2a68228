"""Adds up the numbers of each sequence; the id, a text, is added to the last sum as a number."""

import numpy as np

from penstock.model import InvalidRequestError, Model, Request, Response


class StringSequence(Model):
    def __init__(self) -> None:
        self._sums: dict[str, int] = {}

    async def infer(self, request: Request) -> Response:
        sequence = request.text("CORRID")
        number = int(request["INPUT"][0, 0])
        total = number + (0 if request["START"].any() else self._sums.get(sequence, 0))
        self._sums[sequence] = total
        if request["END"].any():
            del self._sums[sequence]
            total += whole_number(sequence)
        return Response({"OUTPUT": np.array([[total]], np.int32)})


def whole_number(sequence: str) -> int:
    try:
        return int(sequence)
    except ValueError as error:
        raise InvalidRequestError(f"the sequence id must be a number, not {sequence!r}") from error
