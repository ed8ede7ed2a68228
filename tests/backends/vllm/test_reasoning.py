"""What a parser of reasoning is shown of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from penstock_backends.language_model import Candidate
from penstock_backends.vllm.reasoning import ReasoningReader

MARK = 9


class Parser:
    """All before the mark is reasoning; remembers what it was given."""

    def __init__(self) -> None:
        self.given: list[tuple[Any, ...]] = []

    def extract_reasoning_streaming(
        self,
        before: str,
        now: str,
        text: str,
        ids_before: Sequence[int],
        ids: Sequence[int],
        *_: Any,
    ) -> Any:
        self.given.append((before, now, text, list(ids_before), list(ids)))
        if MARK in ids_before:
            return SimpleNamespace(reasoning=None, content=text)
        return None if MARK in ids else SimpleNamespace(reasoning=text, content=None)


def test_a_parser_sees_all_that_came_before_a_piece() -> None:
    parser, candidate = Parser(), Candidate()
    reader = ReasoningReader(parser, candidate, stream=True)
    for text, ids in (("so ", [1, 2]), ("", [MARK]), ("yes", [3])):
        reader.add(SimpleNamespace(text=text, token_ids=ids, finish_reason=None))
    assert parser.given == [
        ("", "so ", "so ", [], [1, 2]),
        ("so ", "so ", "", [1, 2], [1, 2, MARK]),
        ("so ", "so yes", "yes", [1, 2, MARK], [1, 2, MARK, 3]),
    ]
    assert (candidate.reasoning, candidate.text) == (["so "], ["yes"])
