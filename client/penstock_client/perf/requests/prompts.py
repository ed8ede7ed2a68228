"""Prompts for language models: of given lengths, some of which begin alike."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from penstock_client.perf.requests.lengths import Lengths

_WORDS = """
time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work government number
night point home water room mother area money story fact month lot right study book eye job word
business issue side kind head house service friend father power hour game line end member law car
city community name president team minute idea body information back parent face others level
office door health person art war history party result change morning reason research girl guy
moment air teacher force education
""".split()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, and how many tokens are wanted in answer to it; 0 leaves that to the model."""

    text: str
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """The first `words` of each prompt are one of `count` texts."""

    words: int
    count: int = 1


def make_prompts(
    count: int, words: Lengths, output: Lengths | None, prefix: SharedPrefix | None, seed: int
) -> list[Prompt]:
    """Prompts of random words, the same for the same seed."""
    chance = random.Random(seed)
    lengths = [(words.draw(chance), output.draw(chance) if output else 0) for _ in range(count)]
    return prompts_of(lengths, prefix, seed)


def prompts_of(
    lengths: Sequence[tuple[int, int]], prefix: SharedPrefix | None, seed: int
) -> list[Prompt]:
    """Prompts of random words with given lengths, and the tokens to answer each with."""
    chance = random.Random(seed)
    prefixes = [_text(chance, prefix.words) for _ in range(prefix.count)] if prefix else []
    prompts = []
    for words, tokens in lengths:
        text = _text(chance, max(1, words))
        prompts.append(Prompt(f"{chance.choice(prefixes)} {text}" if prefixes else text, tokens))
    return prompts


def with_outputs(texts: list[str], output: Lengths | None, seed: int) -> list[Prompt]:
    """Given prompts, with a number of tokens to answer each with."""
    chance = random.Random(seed)
    return [Prompt(text, output.draw(chance) if output else 0) for text in texts]


def _text(chance: random.Random, words: int) -> str:
    return " ".join(chance.choices(_WORDS, k=words))
