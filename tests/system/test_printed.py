"""Lines that model processes print carry the names of their model and instance."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.outcomes import raises_nothing
from penstock.system.printed import NamedLines, PrintedOutput

ORIGIN = {"model": "m", "instance": "m_0_1"}
Capture = pytest.CaptureFixture[str]


def copied(*pieces: bytes) -> list[bytes]:
    lines = NamedLines(b"[m] ")
    return [line for piece in pieces for line in lines.add(piece)] + lines.end()


@given(st.lists(st.binary(max_size=8)))
def test_every_line_is_named_however_it_comes(pieces: list[bytes]) -> None:
    *lines, rest = b"".join(pieces).split(b"\n")
    whole = [*lines, *([rest] if rest else [])]
    wanted = [
        line + b"\n" if line[:1] == b"{" and line.rstrip()[-1:] == b"}" else b"[m] " + line + b"\n"
        for line in whole
    ]
    assert copied(*pieces) == wanted


def test_json_stays_as_it_is_for_those_who_parse_it() -> None:
    line = json.dumps({"level": "info"}).encode()
    assert copied(line + b"\r\nx\n") == [line + b"\r\n", b"[m] x\n"]


def test_a_line_without_end_is_broken() -> None:
    lines = copied(b"x" * 100_000, b"x" * 100_000)
    assert sum(line.count(b"x") for line in lines) == 200_000
    assert max(map(len, lines)) <= (64 << 10) + 5


def test_streams_are_kept_apart(capfd: Capture) -> None:
    printed = PrintedOutput(ORIGIN)
    os.write(printed.stdout, b"one\ntw")
    os.write(printed.stderr, b"wrong\n")
    os.write(printed.stdout, b"o")
    printed.close_ends()
    printed.wait(60)
    assert capfd.readouterr() == (
        "[model=m instance=m_0_1] one\n[model=m instance=m_0_1] two\n",
        "[model=m instance=m_0_1] wrong\n",
    )


def test_no_pipe_is_left_open(capfd: Capture) -> None:
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        printed = PrintedOutput(ORIGIN)
        printed.close_ends()
        printed.wait(60)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_output_that_takes_nothing_holds_up_nobody(capfd: Capture) -> None:
    with raises_nothing(), open("/dev/full", "w") as full:
        kept = os.dup(1)
        os.dup2(full.fileno(), 1)
        try:
            printed = PrintedOutput(ORIGIN)
            for _ in range(1000):  # more than a pipe holds
                os.write(printed.stdout, b"x" * 999 + b"\n")
            printed.close_ends()
            printed.wait(60)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
