"""`PromptTokens`: the tokens of prompts; those of long ones are made on a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from penstock.backend import InferenceError, as_inference_error
from penstock_backends.language_model.prompt_size import check_long_prompt

LONG: Final = 4096
"""Characters up to which a prompt is tokenized at once: 0.8 ms; a thread and back is 0.04."""

Put = Callable[["list[int] | InferenceError"], None]
"""Takes the tokens of a prompt, or why there are none."""


class PromptTokens:
    """Makes tokens of prompts for an engine that steps on the event loop.

    `tokenizer` is one of the package `tokenizers`. `run` calls a function on the instance's thread,
    where long prompts come one after another. Prompts of far more tokens than `context` are
    refused with `InvalidRequestError`.
    """

    def __init__(self, tokenizer: Any, run: Callable[..., Awaitable[Any]], context: int) -> None:
        self._tokenizer = tokenizer
        self._run = run
        self._context = context
        self._tasks: set[asyncio.Task[None]] = set()

    @staticmethod
    def long(text: str) -> bool:
        """Whether its tokens are better made on a thread."""
        return len(text) > LONG

    def here(self, text: str, *, special: bool = True) -> list[int]:
        """The tokens, made on the thread of the caller; `special` ones with them."""
        check_long_prompt(text, self._count, self._context)
        return self._encode(text, special)

    async def of(self, text: str, *, special: bool = True) -> list[int]:
        """The tokens, made wherever nobody waits for long."""
        if not self.long(text):
            return self.here(text, special=special)
        made: list[int] = await self._run(partial(self.here, text, special=special))
        return made

    def later(self, text: str, wanted: Callable[[], bool], put: Put) -> None:
        """Have the tokens made on the thread, and `put`; nothing is if nobody wants them then."""
        task = asyncio.get_running_loop().create_task(self._later(text, wanted, put))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for nothing any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _later(self, text: str, wanted: Callable[[], bool], put: Put) -> None:
        try:
            made = await self._run(lambda: self.here(text) if wanted() else [])
        except Exception as error:  # a tokenizer's own, of any kind
            made = as_inference_error(error)
        if wanted():
            put(made)

    def _encode(self, text: str, special: bool) -> list[int]:
        if not self.long(text):
            return list(self._tokenizer.encode(text, add_special_tokens=special).ids)
        # Unlike `encode`, this lets go of the GIL.
        (encoded,) = self._tokenizer.encode_batch([text], add_special_tokens=special)
        return list(encoded.ids)

    def _count(self, text: str) -> int:
        return len(self._encode(text, False))
