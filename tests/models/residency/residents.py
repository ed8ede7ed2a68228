"""Strategies of resident models, and of bytes that are missing, by limit."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.models.residency.memory import Resident

_TIMES = st.floats(0, 1e6, allow_nan=False)
_LIMITS = st.sampled_from(("host", "gpu0", "gpu1"))
_SIZES = st.dictionaries(_LIMITS, st.integers(0, 1 << 40))
_STATES = st.sampled_from(
    (
        *((True, True, False), (False, True, False), (False, False, False)),
        *((False, False, True), (False, False, False, True)),
    )
)


def _resident(
    name: str, sizes: dict[str, int], idle: float, load: float, state: tuple[bool, ...]
) -> Resident:
    return Resident(name, sizes, idle, load, *state)


RESIDENTS = st.lists(
    st.builds(_resident, st.text(), _SIZES, _TIMES, _TIMES, _STATES),
    max_size=12,
    unique_by=lambda one: one.name,
)
MISSING = st.dictionaries(_LIMITS, st.integers(1, 1 << 41), min_size=1)
