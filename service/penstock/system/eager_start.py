"""Eager start of coroutines: a task is created only when one has to wait."""

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
    """Run a coroutine until its first wait; the rest runs in the task that is returned.

    If it never waits, `done`, if given, is called with its result. Its exceptions propagate.
    Before the first wait it has no task of its own.
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
    """Continue after `waited`, the future that the coroutine has yielded already."""
    step: Callable[[Any], Any]
    while True:
        try:
            argument = yield waited
            step = coroutine.send
        except BaseException as error:  # mostly a cancellation
            argument, step = error, coroutine.throw
        try:
            waited = step(argument)
        except StopIteration as stop:
            return stop.value
        finally:
            argument = None  # an error whose traceback has this frame: the two would live for long
