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


def test_a_number_may_have_any_name_that_is_not_endless() -> None:
    """The page of metrics makes names of Prometheus of them."""
    assert DECODERS[Kind.METRICS](msgspec.msgpack.encode({"share of 1": 1.0}))
    with pytest.raises(msgspec.ValidationError):
        DECODERS[Kind.METRICS](msgspec.msgpack.encode({"x" * 4097: 1.0}))
