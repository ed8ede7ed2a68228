"""Commands of operators to all instances of a model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.core.errors import as_inference_error, no_commands
from penstock.models.serving.instance import ModelInstance


async def control_all(
    instances: Sequence[ModelInstance], action: str, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Have every instance carry out a command; what each returned, by its name.

    Raises the first error once all have ended; with several instances it names that one.
    """
    if not instances:  # an ensemble
        raise no_commands(action)
    commands = (instance.control(action, arguments) for instance in instances)
    values = await asyncio.gather(*commands, return_exceptions=True)
    done: dict[str, Any] = {}
    for instance, value in zip(instances, values, strict=True):
        if isinstance(value, BaseException):
            error = as_inference_error(value)
            if len(instances) > 1:
                raise type(error)(f"instance '{instance.name}': {error.message}") from value
            raise error from value
        done[instance.name] = value
    return done
