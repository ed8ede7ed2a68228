"""Limits on what one request may hold, the same for all protocols.

What is counted here is read, checked or sent to a model in one step of the event loop, so requests
with more of it would delay those of other clients. Counts are compared before anything is
converted.
"""

from __future__ import annotations

from collections.abc import Sized

from penstock.core.errors import InvalidRequestError, shortened

MOST_DIMENSIONS = 1 << 10
"""The most dimensions of a tensor."""

MOST_PARAMETERS = 1 << 12
"""The most parameters of a request; they travel to the model with it, in one piece."""

MOST_TENSORS = 1 << 12
"""The most inputs of a request, and the most outputs that it names."""


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


def _check(kind: str, given: Sized, most: int) -> None:
    if len(given) > most:
        raise InvalidRequestError(
            f"request has {len(given)} {kind}, which exceeds the maximum allowed value of {most}"
        )
