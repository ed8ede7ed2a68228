"""`Embeddings`, the vectors of texts, and `Scores`, how well pairs of texts go together."""

from __future__ import annotations

from typing import NamedTuple

from penstock.backend import Array


class Embeddings(NamedTuple):
    """One row of numbers for each text, and the tokens of all texts together."""

    rows: Array
    tokens: int


class Scores(NamedTuple):
    """One number for each pair, the higher the better, and the tokens of all pairs together."""

    values: list[float]
    tokens: int
