"""Headers that a model process may send: what engines do send is among them."""

from __future__ import annotations

import msgspec.msgpack
import pytest

from penstock.hosting.link.messages import Kind
from penstock.hosting.parent.answer_types import DECODERS
from penstock.metrics.series_name import series_name


def test_numbers_of_a_family_with_labels_are_taken() -> None:
    numbers = {series_name("penstock_llm_tokens", tenant='a "b"\n{c}'): 1.0, "plain": 2.0}
    sent = msgspec.msgpack.encode(numbers)
    assert DECODERS[Kind.METRICS](sent) == numbers


@pytest.mark.parametrize("name", ["a b", "a\n", "a{", "1a", ""])
def test_what_is_no_name_of_a_number_is_refused(name: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        DECODERS[Kind.METRICS](msgspec.msgpack.encode({name: 1.0}))
