"""What a test says of something that only has to be without an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def raises_nothing() -> Iterator[None]:
    """The assertion of a test that the block is accepted, or ends: any error is its failure."""
    try:
        yield
    except Exception as error:
        pytest.fail(f"raised {type(error).__name__}: {error}")
