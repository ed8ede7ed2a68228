"""What is told of a download that takes long."""

from __future__ import annotations

import logging
import sys
import time
from io import StringIO

import pytest

from penstock.models.remote.downloads import _Progress

MIB = 1 << 20


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_a_terminal_has_a_bar_that_is_gone_at_the_end(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with _Progress("m", 4 * MIB) as progress:
        clock[0] += 0.125
        progress.add(MIB)
        assert terminal.getvalue() == ""
        clock[0] += 0.125
        progress.add(MIB)
        shown = f"\r\x1b[K[{'=' * 15}{' ' * 15}] m: 2 of 4 MiB, 8 MiB/s"
        assert terminal.getvalue() == shown
        progress.add(MIB)
        assert terminal.getvalue() == shown
    assert terminal.getvalue() == f"{shown}\r\x1b[K"


def test_a_bar_is_no_longer_than_a_line(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that wraps is not written over by the next one; a terminal has 80 columns."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with _Progress(
        "s3://https://store.example.com:9000/a-bucket/models resnet", 4 * MIB
    ) as progress:
        clock[0] += 0.25
        progress.add(2 * MIB)
        shown = terminal.getvalue().removeprefix("\r\x1b[K")
    assert len(shown) == 79
    assert shown.endswith("/models resnet: 2 of 4 MiB, 8 MiB/s")


def test_what_is_quick_has_no_bar(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with _Progress("m", MIB) as progress:
        progress.add(MIB)
    assert terminal.getvalue() == ""


def test_elsewhere_there_are_lines(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "stderr", StringIO())
    with caplog.at_level(logging.INFO), _Progress("m", 40 * MIB) as progress:
        for _ in range(40):
            clock[0] += 1.0
            progress.add(MIB)
    *lines, last = caplog.messages
    assert last == "fetched m: 40.0 MiB in 40.0 s"
    assert lines
    assert all(line.startswith("fetching m: ") and line.endswith(" MiB, 1 MiB/s") for line in lines)


def test_a_download_that_failed_is_not_told_as_done(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(ValueError, match="no"), _Progress("m", 1):
        raise ValueError("no")
    assert caplog.messages == []
