"""The last descriptors are not for connections."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.system.fd_reserve import DescriptorReserve, spare_from


class Connection(asyncio.BaseTransport):
    """A transport whose socket has this number, or which has none."""

    def __init__(self, number: int | None) -> None:
        super().__init__({})
        self._number = number

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        number = self._number
        return None if number is None else SimpleNamespace(fileno=lambda: number)


@pytest.fixture
def limit() -> Iterator[int]:
    """A limit of 1,024, which leaves 64 in reserve."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    yield 1024
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("number", "stays"), [(5, True), (959, True), (960, False), (1023, False), (None, True)]
)
def test_connections_leave_the_last_numbers(limit: int, number: int | None, stays: bool) -> None:
    assert DescriptorReserve().admits(Connection(number)) is stays


def test_of_few_few_are_kept() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        assert spare_from() == 150
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_flood_is_one_line_of_the_log(limit: int, caplog: pytest.LogCaptureFixture) -> None:
    reserve = DescriptorReserve()
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            reserve.admits(Connection(limit - 1))
    (line,) = caplog.messages
    assert line.startswith("Connections are refused, 1 so far: of 1024 file descriptors")
