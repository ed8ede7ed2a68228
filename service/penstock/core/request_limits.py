"""Limits on what one request may hold, the same for all protocols.

What is counted here is read, checked or sent to a model in one step of the event loop, so requests
with more of it would delay those of other clients. Counts are compared before anything is
converted.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized

from penstock.core.errors import InvalidRequestError, shortened

MOST_DIMENSIONS = 1 << 10
"""The most dimensions of a tensor."""

MOST_PARAMETERS = 1 << 12
"""The most parameters of a request; they travel to the model with it, in one piece."""

MOST_TENSORS = 1 << 12
"""The most inputs of a request, and the most outputs that it names."""

MOST_ELEMENTS = 1 << 20
"""The most elements of a BYTES tensor from the network; an option may say otherwise."""

FEW_ELEMENTS = 8192
"""Elements of a BYTES tensor that admission counts in a few milliseconds."""


def elements_in(shape: Sequence[int], most: int) -> int:
    """The elements of a tensor of this shape; `most` + 1 if they are more, 0 if it is invalid.

    A product of thousands of large dimensions, as of strangers, would take minutes.
    """
    if len(shape) > MOST_DIMENSIONS or (shape and min(shape) < 1):
        return 0
    count = 1
    for size in shape:
        count *= size
        if count > most:
            return most + 1
    return count


def too_many_elements(where: str, most: int) -> InvalidRequestError:
    """The error for a tensor of more BYTES elements than are allowed; `where` names it."""
    return InvalidRequestError(
        f"input tensor {where} has more than {most} elements of BYTES. Use --max-bytes-elements to"
        " increase the limit."
    )


def check_dimensions(name: str, shape: Sized) -> None:
    """Raise `InvalidRequestError` if input `name` has more than `MOST_DIMENSIONS`."""
    if len(shape) > MOST_DIMENSIONS:
        raise InvalidRequestError(
            f"input '{shortened(name)}' has {len(shape)} dimensions, which exceeds the maximum"
            f" allowed value of {MOST_DIMENSIONS}"
        )


def check_parameters(parameters: Sized) -> None:
    """Raise `InvalidRequestError` if a request has more than `MOST_PARAMETERS`."""
    _check("parameters", parameters, MOST_PARAMETERS)


def check_inputs(inputs: Sized) -> None:
    """Raise `InvalidRequestError` if a request has more than `MOST_TENSORS` inputs."""
    _check("inputs", inputs, MOST_TENSORS)


def check_outputs(outputs: Sized) -> None:
    """Raise `InvalidRequestError` if a request names more than `MOST_TENSORS` outputs."""
    _check("outputs", outputs, MOST_TENSORS)


def repeated_output(name: str) -> InvalidRequestError:
    """The error for a request that names an output twice."""
    return InvalidRequestError(f"output '{shortened(name)}' is requested more than once")


def _check(kind: str, given: Sized, most: int) -> None:
    if len(given) > most:
        raise InvalidRequestError(
            f"request has {len(given)} {kind}, which exceeds the maximum allowed value of {most}"
        )
