"""uvloop's loop, which names what is left open when it is closed."""

from __future__ import annotations

import warnings

import uvloop


class CheckedLoop(uvloop.Loop):
    """Its `close` fails if processes or connections are left.

    uvloop warns of each before it closes it; where warnings are errors, as in all tests, it leaves
    the handle open instead, and then waits for its end for ever.
    """

    def close(self) -> None:
        with warnings.catch_warnings(record=True) as left:
            warnings.simplefilter("always")
            super().close()
        assert not left, [str(warning.message) for warning in left]
