"""Constraints of a language model's output: what an engine could not bear is refused."""

from __future__ import annotations

from penstock_backends.language_model.constraints.check import NAME, check_constraint

__all__ = ["NAME", "check_constraint"]
