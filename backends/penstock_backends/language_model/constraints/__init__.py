"""Constraints of a language model's output: what an engine could not bear is refused."""

from __future__ import annotations

from penstock_backends.language_model.constraints.check import NAME, check_constraint
from penstock_backends.language_model.constraints.number_rules import MOST_DIGITS, NUMBER_RULES

__all__ = ["MOST_DIGITS", "NAME", "NUMBER_RULES", "check_constraint"]
