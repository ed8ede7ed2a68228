"""Resampling: signals at another rate, through a windowed sinc or by straight lines."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, gcd
from typing import Final

import numpy as np

from penstock.backend import Array

_ZEROS: Final = 24
"""Zero crossings of the sinc on each side: -80 dB from 0.96 of the lower rate's half."""
_ROLLOFF: Final = 0.94
_BETA: Final = 9.0
"""The shape of the Kaiser window."""

_MOST_WEIGHTS: Final = 1 << 20
"""Weights that are kept of two rates; of others they are computed as they are needed."""
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
    return _sample_by_sample(padded, up, down, length)


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
    return _weights(np.arange(up), up, down)


def _sample_by_sample(padded: Array, up: int, down: int, length: int) -> Array:
    made = np.empty(length, np.float32)
    width = 2 * half_window(down, up)
    windows = np.lib.stride_tricks.sliding_window_view(padded, width)
    step = max(1, _AT_ONCE // width)
    for begin in range(0, length, step):
        places = np.arange(begin, min(begin + step, length))
        own = windows[places * down // up]
        made[begin : begin + step] = np.einsum("ij,ij->i", own, _weights(places, up, down))
    return made


def _weights(places: Array, up: int, down: int) -> Array:
    """The weights of the samples around each place of the result, [places, window]."""
    half = half_window(down, up)
    cut = _ROLLOFF * min(1.0, up / down)
    offsets = np.arange(2 * half) - half - (places * down % up / up)[:, np.newaxis]
    inside = np.clip(1 - (offsets / half) ** 2, 0, None)
    window = np.i0(_BETA * np.sqrt(inside)) / np.i0(_BETA)
    return (cut * np.sinc(cut * offsets) * window).astype(np.float32)
