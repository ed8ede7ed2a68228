"""Carries out commands of operators in a model process."""

from __future__ import annotations

import json

from penstock.core.backend import Backend
from penstock.core.errors import as_inference_error
from penstock.hosting.link.messages import Command, Commanded


async def carried_out(backend: Backend, command: Command) -> Commanded:
    """The reply to a command, once the backend has carried it out or refused it."""
    number, action, arguments = command
    try:
        value = await backend.control(action, json.loads(arguments))
        return number, json.dumps(value), None
    except Exception as error:  # a backend may raise anything, or return what JSON has not
        problem = as_inference_error(error)
        return number, "", (problem.code, problem.message)
