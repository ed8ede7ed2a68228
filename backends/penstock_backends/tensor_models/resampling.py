"""Resampling: signals at another rate, through a windowed sinc or by straight lines."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, gcd
from typing import Final

import numpy as np

from penstock.backend import Array

_ZEROS: Final = 24
"""Zero crossings of the sinc on each side."""
_ROLLOFF: Final = 0.94
"""With these, all is kept to 0.85 of the lower rate's half; from 1.06 of it, nothing (-95 dB)."""

_PLACES: Final = np.linspace(0, 1, 2049)
_WINDOW: Final = np.i0(9 * np.sqrt(1 - _PLACES**2)) / np.i0(9)
"""The right half of a Kaiser window."""

_MOST_WEIGHTS: Final = 1 << 18
"""Weights that are kept of two rates, all that there are."""
_STEPS: Final = 512
"""Of other rates there are those between so many steps of a sample (-105 dB)."""
_AT_ONCE: Final = 1 << 18
"""Weights that are computed at once then."""


def resampled_length(length: int, rate: int, wanted: int) -> int:
    """Samples at the rate `wanted` of so many at `rate`."""
    return -(-length * wanted // rate)


def half_window(rate: int, wanted: int) -> int:
    """Samples of a signal on each side that one of the result depends on."""
    return ceil(_ZEROS * max(1.0, rate / wanted) / _ROLLOFF)


def resampled(signal: Array, rate: int, wanted: int, *, linear: bool = False) -> Array:
    """The signal, [samples] of FP32, at the rate `wanted`; by straight lines if `linear`.

    Silence is before and after it. Rates are in Hz.
    """
    if rate == wanted or not signal.size:
        return signal
    length = resampled_length(len(signal), rate, wanted)
    if linear:
        places = np.arange(length) * (rate / wanted)
        made: Array = np.interp(places, np.arange(len(signal)), signal).astype(np.float32)
        return made
    common = gcd(rate, wanted)
    up, down = wanted // common, rate // common
    half = half_window(down, up)
    padded = np.concatenate([np.zeros(half, np.float32), signal, np.zeros(half, np.float32)])
    if up * 2 * half <= _MOST_WEIGHTS:
        return _by_phase(padded, up, down, length)
    return _between_steps(padded, up, down, length)


def _by_phase(padded: Array, up: int, down: int, length: int) -> Array:
    """Every sample of the phase `p` has the same weights: those at p, p + up, p + 2 up, ..."""
    made = np.empty(length, np.float32)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half_window(down, up))
    weights = _phases(up, down)
    for phase in range(min(up, length)):
        first = phase * down // up
        own = made[phase::up]
        own[:] = windows[first::down][: len(own)] @ weights[phase]
    return made


@lru_cache(maxsize=8)
def _phases(up: int, down: int) -> Array:
    """The weights of each phase, [up, window]."""
    return _weights(np.arange(up) * down % up / up, up, down)


def _between_steps(padded: Array, up: int, down: int, length: int) -> Array:
    """Each sample from the weights of the two steps beside its place."""
    made = np.empty(length, np.float32)
    weights = _weights(np.arange(_STEPS + 1) / _STEPS, up, down)
    width = weights.shape[1]
    windows = np.lib.stride_tricks.sliding_window_view(padded, width)
    count = max(1, _AT_ONCE // width)
    for begin in range(0, length, count):
        firsts, left = np.divmod(np.arange(begin, min(begin + count, length)) * down, up)
        steps, beyond = np.divmod(left * _STEPS, up)
        share = (beyond / up).astype(np.float32)[:, np.newaxis]
        own = weights[steps] * (1 - share) + weights[steps + 1] * share
        made[begin : begin + count] = np.einsum("ij,ij->i", windows[firsts], own)
    return made


def _weights(fractions: Array, up: int, down: int) -> Array:
    """The weights of the samples around places so far behind one, [fractions, window]."""
    half = half_window(down, up)
    cut = _ROLLOFF * min(1.0, up / down)
    offsets = np.arange(2 * half) - half - fractions[:, np.newaxis]
    window = np.interp(np.abs(offsets) / half, _PLACES, _WINDOW, right=0)
    weights: Array = (cut * np.sinc(cut * offsets) * window).astype(np.float32)
    return weights
