"""Carries out commands of operators in a model process."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from penstock.core.errors import as_inference_error
from penstock.hosting.link.messages import Command, Commanded, pack_error

Control = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""Carries out a command, by its action and arguments; may raise anything."""


async def carried_out(control: Control, command: Command) -> Commanded:
    """The reply to a command, once `control` has carried it out or refused it."""
    number, action, arguments = command
    try:
        value = await control(action, json.loads(arguments))
        return number, json.dumps(value), None
    except Exception as error:  # a backend may raise anything, or return what JSON has not
        return number, "", pack_error(as_inference_error(error))
