"""Sequences: requests with one correlation id reach one instance, in order."""

from __future__ import annotations

from penstock.scheduling.sequences.batcher import SequenceBatcher

__all__ = ["SequenceBatcher"]
