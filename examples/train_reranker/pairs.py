"""What the reranker is trained on: questions with their answers, and passages that have words."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "train_tiny_llm"))

from corpus import documents
from texts import written_conversations

_CONVERSATIONS = Path(__file__).parents[1] / "train_tiny_llm" / "conversations.txt"
_SHORTEST = 12
"""Characters of a question; shorter ones are greetings."""


@dataclass(frozen=True, slots=True)
class Pair:
    query: str
    passage: str


def written_pairs() -> list[Pair]:
    """Questions about Python and their answers, which were written by hand."""
    answers = written_conversations(_CONVERSATIONS.read_text("ascii"))
    return [Pair(asked, said) for asked, said in answers.items() if len(asked) > _SHORTEST]


def paragraphs() -> list[str]:
    """The texts of Python's standard library, for how rare each word is."""
    return [part for document in documents() for part in document.split("\n\n")]
