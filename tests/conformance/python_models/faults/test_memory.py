"""Models that want more memory than they may have."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.python_models.client import Client, RefusedError, floats
from conformance.python_models.faults.models import EXPLICIT, LIMIT, Victim, faulty

MODELS = faulty("limited", "batched", "limit_wrong")
ARGUMENTS = EXPLICIT


def test_request_that_needs_more_memory_than_allowed_fails_alone(
    client: Client, repository: Path
) -> None:
    limited = Victim(client, repository, "limited")
    pid = limited.pid()
    error = client.refusal("limited", {"X": floats(LIMIT // 4)}, request_id="takes_memory")
    assert error.code == "INTERNAL"
    assert "MemoryError: Unable to allocate 1.00 GiB" in error.message
    assert f"{limited.path('1/model.py')}(" in error.message
    assert limited.pid() == pid


def test_response_that_cannot_be_sent_fails_alone(client: Client, repository: Path) -> None:
    """There is memory for the one array, but not for its copy with the bytes in order."""
    Victim(client, repository, "batched")
    numbers = [floats(n).reshape(1, 1) for n in (4, LIMIT // 6)]
    small, large = (client.begin("batched", {"X": n}, request_id="swaps") for n in numbers)
    assert small.result()["Y"].tolist() == [[1, 1, 1, 1]]
    assert "MemoryError" in large.error().message


def test_limit_of_memory_must_be_a_number(client: Client) -> None:
    with pytest.raises(RefusedError, match=r"'penstock\.memory_limit_bytes' must be a number of"):
        client.load("limit_wrong")
