"""Tokens of cancelled requests, for those who still want to know."""

from __future__ import annotations

from penstock.hosting.parent.in_flight import LateUsage


def _told(late: LateUsage, number: int) -> list[tuple[int, int, int]]:
    told: list[tuple[int, int, int]] = []
    late.cancelled(number, lambda *tokens: told.append(tokens))
    return told


def test_tokens_are_told_to_whom_the_number_belongs() -> None:
    late = LateUsage()
    first, second = _told(late, 1), _told(late, 2)
    late.add(2, 7, 3, 9)
    late.add(3, 7, 3, 9)
    assert (first, second) == ([], [(7, 3, 9)])


def test_only_the_latest_are_kept() -> None:
    late = LateUsage()
    told = [_told(late, number) for number in range(LateUsage.MOST + 1)]
    late.add(0, 7, 3, 9)
    late.add(1, 7, 3, 9)
    assert told[:3] == [[], [(7, 3, 9)], []]


def test_nothing_is_told_of_a_process_that_is_gone() -> None:
    late = LateUsage()
    told = _told(late, 1)
    late.clear()
    late.add(1, 7, 3, 9)
    assert told == []
