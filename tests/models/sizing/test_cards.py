"""The table of cards."""

from __future__ import annotations

import pytest

from penstock.core.errors import InvalidRequestError
from penstock.models.sizing.cards import cards, find_card


def test_programs_may_use_less_than_a_card_is_sold_with_and_nearly_all() -> None:
    for card in cards().values():
        assert 0.9 * card.gigabytes * 10**9 < card.usable < card.gigabytes * (1 << 30), card.key


def test_cards_are_listed_from_the_largest() -> None:
    sizes = [card.gigabytes for card in cards().values()]
    assert sizes == sorted(sizes, reverse=True)


def test_a_card_is_found_in_any_case() -> None:
    assert find_card("L40S").name == "NVIDIA L40S"


def test_a_mistyped_card_gets_the_nearest() -> None:
    with pytest.raises(InvalidRequestError, match=r"unknown card 'h10'.*did you mean 'h100'"):
        find_card("h10")
