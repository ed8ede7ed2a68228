"""Plain methods of an asyncio model: `def` where the interface says `async def`.

Code of numerical libraries blocks, so a plain `infer` would hold up the event loop. It runs on a
thread instead: one for the instance, so that such a model need not be thread-safe.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Any

_END = object()


def is_plain_stream(method: Callable[..., Any]) -> bool:
    """Whether the method is a generator, but not an async one."""
    return inspect.isgeneratorfunction(inspect.unwrap(method))


class MethodCalls:
    """Executor of a model's methods: `async` ones on the event loop, plain ones on one thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "model")

    async def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """Call a method, and await its result if it is awaitable.

        A call that waits for the thread can be cancelled; one that runs there runs on, and its
        result is dropped.
        """
        if inspect.iscoroutinefunction(inspect.unwrap(method)):
            return await method(*arguments)
        result = await self._on_thread(copy_context(), method, *arguments)
        return await result if inspect.isawaitable(result) else result

    async def iterate(
        self, method: Callable[..., Any], *arguments: Any
    ) -> AsyncGenerator[Any, None]:
        """Iterate over a plain generator; closing this closes it, on the thread too."""
        generator: Iterator[Any] = method(*arguments)  # runs nothing yet
        context = copy_context()  # one for all, as what a generator sets lasts from step to step
        try:
            while (value := await self._on_thread(context, next, generator, _END)) is not _END:
                yield value
        finally:
            close = generator.close  # type: ignore[attr-defined]
            await self._on_thread(context, close)

    async def _on_thread(
        self, context: Context, method: Callable[..., Any], *arguments: Any
    ) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, context.run, _guarded, method, arguments)


def _guarded(method: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    try:
        return method(*arguments)
    except StopIteration as error:  # no future can hold it
        raise RuntimeError("the model raised StopIteration") from error
