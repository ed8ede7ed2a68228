"""Events of changes."""

from __future__ import annotations

from penstock.core.change_notifier import ChangeNotifier


async def test_each_change_is_an_event_of_its_own() -> None:
    notifier = ChangeNotifier()
    first = notifier.next
    notifier.notify()
    second = notifier.next
    assert (first.is_set(), second.is_set(), first is second) == (True, False, False)
