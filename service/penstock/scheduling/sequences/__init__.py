"""Sequence batching: requests with one correlation id execute on one instance, in order."""

from __future__ import annotations

from penstock.scheduling.sequences.batcher import SequenceBatcher

__all__ = ["SequenceBatcher"]
