"""Archives of tokenizers: made once, and kept within a bound."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from penstock.core.engine_facts import EngineFacts
from penstock.rpc.engine.tokenizer import Bundle, TokenizerBundles

SIZE = 1_000_000


def tokenizer(folder: Path, seed: int) -> EngineFacts:
    """A model whose tokenizer has so many bytes, which cannot be packed."""
    folder.mkdir()
    (folder / "tokenizer.model").write_bytes(random.Random(seed).randbytes(SIZE))
    return EngineFacts(tokenizer=str(folder))


def test_routers_that_ask_at_once_get_one_archive(tmp_path: Path) -> None:
    facts, bundles, routers = tokenizer(tmp_path / "a", 1), TokenizerBundles(), 8
    at_once = Barrier(routers)

    def ask(_: int) -> Bundle:
        at_once.wait()
        return bundles.get(facts)

    with ThreadPoolExecutor(routers) as threads:
        assert len({id(one) for one in threads.map(ask, range(routers))}) == 1


def test_archives_are_kept_while_there_is_room(tmp_path: Path) -> None:
    models = [tokenizer(tmp_path / str(seed), seed) for seed in range(3)]
    bundles = TokenizerBundles(most_kept=2 * SIZE + 1000)
    made = [bundles.get(one) for one in models]
    again = [bundles.get(one) for one in reversed(models)]
    assert [old is new for old, new in zip(made, reversed(again), strict=True)] == [
        False,
        True,
        True,
    ]
