"""Tokens of prompts that are made on a thread."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock_backends.language_model import PromptTokens

tokenizers = pytest.importorskip("tokenizers")


async def test_the_event_loop_has_its_turns_while_a_long_prompt_is_tokenized(
    gguf_version: Path,
) -> None:
    """The tokenizer lets go of the GIL: otherwise there would be hardly any."""
    tokenizer: Any = tokenizers.Tokenizer.from_file(str(gguf_version / "tokenizer.json"))
    text = "The with statement is used to open a file. " * 5000
    with ThreadPoolExecutor(1) as thread:
        run = partial(asyncio.get_running_loop().run_in_executor, thread)
        made = asyncio.ensure_future(PromptTokens(tokenizer, run, 1 << 20).encode_async(text))
        turns = 0
        while not made.done():
            await asyncio.sleep(0)
            turns += 1
    assert turns > 100
    assert await made == tokenizer.encode(text).ids
