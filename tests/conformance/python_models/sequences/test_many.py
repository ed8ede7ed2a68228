"""A thousand sequences at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from conformance.python_models.client import Client
from conformance.python_models.sequences.models import options, row, sequential

MODELS = sequential("many", "many_direct")


@pytest.mark.contract("S-01", "S-06", "S-07")
@pytest.mark.parametrize("model", ["many", "many_direct"])
def test_a_thousand_interleaved_sequences_see_their_own_states(client: Client, model: str) -> None:
    """There are fewer slots, so some wait until others have ended."""
    streams, steps = 8, 4
    orders = []
    for stream in range(streams):
        asked = list(_interleaved(range(1 + stream, 1001, streams), steps))
        requests = [(row(id * at), options(id, at, steps)) for id, at in asked]
        orders.append((asked, client.talk(model, requests)))
    homes: dict[int, int] = {}
    for asked, order in orders:
        for id, at in asked:
            pid, count, total = order.next_event(120)["Y"].flat
            assert (count, total) == (at + 1, id * sum(range(at + 1)))
            assert homes.setdefault(id, pid) == pid
    assert (len(homes), len(set(homes.values()))) == (1000, 4)


def _interleaved(ids: Sequence[int], steps: int) -> Iterator[tuple[int, int]]:
    """Every step of every sequence, in another order of the sequences at each."""
    for at in range(steps):
        for number in range(len(ids)):
            yield ids[(number * 7 + at * 13) % len(ids)], at
