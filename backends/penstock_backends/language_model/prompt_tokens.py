"""`PromptTokens`: tokenizes prompts, long ones on a thread."""

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
    """Tokenizes prompts for an engine that steps on the event loop.

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
    def is_long(text: str) -> bool:
        """Whether a text is better tokenized on a thread."""
        return len(text) > LONG

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """The tokens, made on the thread of the caller; `special` ones with them.

        Raises `InvalidRequestError` for far more than the context has.
        """
        check_long_prompt(text, self._count, self._context)
        return self._ids(text, special)

    async def encode_async(self, text: str, *, special: bool = True) -> list[int]:
        """As `encode`, on a thread where the text is long."""
        if not self.is_long(text):
            return self.encode(text, special=special)
        made: list[int] = await self._run(partial(self.encode, text, special=special))
        return made

    def encode_later(self, text: str, wanted: Callable[[], bool], put: Put) -> None:
        """Tokenize on the thread, and `put` the tokens or an error, if still `wanted` then."""
        task = asyncio.get_running_loop().create_task(self._encode_later(text, wanted, put))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Cancel what `encode_later` began; nothing is put any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _encode_later(self, text: str, wanted: Callable[[], bool], put: Put) -> None:
        try:
            made = await self._run(lambda: self.encode(text) if wanted() else [])
        except Exception as error:  # a tokenizer's own, of any kind
            made = as_inference_error(error)
        if wanted():
            put(made)

    def _ids(self, text: str, special: bool) -> list[int]:
        if not self.is_long(text):
            return list(self._tokenizer.encode(text, add_special_tokens=special).ids)
        # Unlike `encode`, this lets go of the GIL.
        (encoded,) = self._tokenizer.encode_batch([text], add_special_tokens=special)
        return list(encoded.ids)

    def _count(self, text: str) -> int:
        return len(self._ids(text, False))
