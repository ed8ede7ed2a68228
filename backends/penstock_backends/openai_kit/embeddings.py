"""`Embeddings`: the vectors of texts."""

from __future__ import annotations

from typing import NamedTuple

from penstock.backend import Array


class Embeddings(NamedTuple):
    """One row of numbers for each text, and the tokens of all texts together."""

    rows: Array
    tokens: int
