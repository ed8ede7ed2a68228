"""A bounded part of the fuzzing; `python -m http1.fuzzing` does as much as one likes."""

from __future__ import annotations

import pytest

from http1.fuzzing.fuzzer import Fuzzer


@pytest.mark.slow
def test_hostile_bytes_do_no_harm() -> None:
    fuzzer = Fuzzer(seed=1)
    fuzzer.run(12_000)
    assert {"200", "400", "431"} <= set(fuzzer.ends)
