"""A bounded part of the fuzzing; `python -m rpc.fuzzing` does as much as one likes."""

from __future__ import annotations

import pytest

from rpc.fuzzing.fuzzer import Fuzzer


@pytest.mark.slow
def test_messages_are_understood_as_protobuf_understands_them() -> None:
    fuzzer = Fuzzer(seed=1)
    fuzzer.run(6_000)
    assert {"request", "DecodeError", "InvalidRequestError"} == set(fuzzer.outcomes)
