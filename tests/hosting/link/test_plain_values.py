"""msgpack of plain values: whatever package is there, the server reads the same."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import ormsgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.hosting.link.plain_values import dumps, encode_plainly

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20
)


@given(_VALUES)
def test_the_server_reads_what_was_encoded_in_any_way(value: Any) -> None:
    ways = (encode_plainly, dumps, ormsgpack.packb, msgspec.msgpack.encode)
    assert [msgspec.msgpack.decode(encode(value)) for encode in ways] == [value] * 4


@pytest.mark.parametrize("size", [31, 32, 255, 256, 65535, 65536])
def test_lengths_have_their_forms(size: int) -> None:
    value = ["x" * size, b"y" * size, [0] * size, {str(n): n for n in range(size)}]
    assert msgspec.msgpack.decode(encode_plainly(value)) == value


@pytest.mark.parametrize(
    ("value", "sent"),
    [("a\ud800", "a\\ud800"), (np.int64(5), 5), (np.float32(0.5), 0.5), ((1, (2,)), [1, [2]])],
)
def test_what_is_nearly_plain_is_sent_as_well_as_it_can_be(value: Any, sent: Any) -> None:
    assert msgspec.msgpack.decode(dumps(value)) == sent


@pytest.mark.parametrize("value", [object(), 2**64, -(2**63) - 1, {"x": object()}])
def test_what_is_not_plain_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="sent"):
        dumps(value)


def test_what_is_nested_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested too deeply"):
        dumps(endless)
