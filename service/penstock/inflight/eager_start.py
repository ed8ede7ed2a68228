"""Coroutines that are begun without a task, and get one only if they have to wait."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from typing import Any


def start_eagerly(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, Any],
    done: Callable[[Any], None] | None = None,
) -> asyncio.Task[Any] | None:
    """Run a coroutine up to where it waits; from there it goes on in the task returned.

    If it does not wait, `done`, if given, is called with its result. What it raises is raised.
    Until it waits, there is no current task.
    """
    context = copy_context()
    try:
        waited = context.run(coroutine.send, None)
    except StopIteration as stop:
        if done is not None:
            done(stop.value)
        return None
    return loop.create_task(_finish(coroutine, waited), context=context)


async def _finish(coroutine: Coroutine[Any, Any, Any], waited: Any) -> Any:
    return await _resume(coroutine, waited)


@types.coroutine
def _resume(coroutine: Coroutine[Any, Any, Any], waited: Any) -> Generator[Any, Any, Any]:
    """Go on from `waited`, which the coroutine has already asked to wait for."""
    step: Callable[[Any], Any]
    while True:
        try:
            argument = yield waited
            step = coroutine.send
        except BaseException as error:  # cancellation above all
            argument, step = error, coroutine.throw
        try:
            waited = step(argument)
        except StopIteration as stop:
            return stop.value
