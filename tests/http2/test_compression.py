"""Compressing and unpacking by steps: the same bytes, bounded work, and clear errors."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.http2.grpc import DEFLATE, GZIP, Deflation, InflateError, Inflation, Work
from penstock.http2.stream import Buffer

MIB = 1 << 20


def finished(work: Work) -> Buffer:
    while not work.step():
        pass
    return work.result()


def steps(work: Work) -> int:
    count = 1
    while not work.step():
        count += 1
    return count


@given(st.sampled_from([GZIP, DEFLATE]), st.lists(st.binary()), st.integers(0, 300_000))
def test_compressed_message_can_be_decompressed(
    encoding: bytes, parts: list[bytes], more: int
) -> None:
    parts = [*parts, bytes(more)]
    packed = finished(Deflation(encoding, parts, 6))
    assert finished(Inflation(encoding, packed, 10 * MIB)) == b"".join(parts)


def test_other_programs_decompress_the_message() -> None:
    assert gzip.decompress(finished(Deflation(GZIP, [b"ab", b"c"], 9))) == b"abc"
    assert zlib.decompress(finished(Deflation(DEFLATE, [b"ab", b"c"], 6))) == b"abc"


@pytest.mark.slow
def test_a_step_gives_a_bounded_piece() -> None:
    """Zeros grow a thousandfold."""
    assert steps(Inflation(DEFLATE, zlib.compress(bytes(64 * MIB)), 64 * MIB)) >= 64


def test_a_step_takes_a_bounded_piece() -> None:
    """Blocks of nothing never grow."""
    machine = zlib.compressobj()
    nothing = zlib.compress(b"")[:2] + b"\0\0\0\xff\xff" * MIB + machine.flush()[2:]
    assert steps(Inflation(DEFLATE, nothing, 1)) >= 5


def test_compression_is_done_in_steps_for_any_parts() -> None:
    assert steps(Deflation(GZIP, [bytes(5 * MIB), b"x", bytes(3 * MIB)], 6)) >= 8


def test_unpacking_ends_as_soon_as_it_is_too_much() -> None:
    inflation = Inflation(DEFLATE, zlib.compress(bytes(64 * MIB)), 2 * MIB)
    with pytest.raises(InflateError, match="unpacks to more than 2097152 bytes") as error:
        finished(inflation)
    assert error.value.too_large
    assert len(inflation.result()) <= 2 * MIB + (64 << 10)


def test_exactly_the_limit_is_not_too_much() -> None:
    assert len(finished(Inflation(GZIP, gzip.compress(bytes(MIB)), MIB))) == MIB


@pytest.mark.parametrize(
    "data",
    [b"", b"no such thing", gzip.compress(b"abc")[:-1], gzip.compress(bytes(MIB))[:-500]],
    ids=["empty", "other", "short", "shorter"],
)
def test_invalid_compressed_message_is_refused(data: bytes) -> None:
    with pytest.raises(InflateError, match="message cannot be decompressed") as error:
        finished(Inflation(GZIP, data, 10 * MIB))
    assert not error.value.too_large


@pytest.mark.parametrize("more", [b"x", bytes(200_000)])
def test_data_after_a_compressed_message_is_refused(more: bytes) -> None:
    with pytest.raises(InflateError, match="message cannot be decompressed"):
        finished(Inflation(GZIP, gzip.compress(b"abc") + more, 10 * MIB))


@pytest.mark.slow
def test_step_of_a_closed_inflation_finishes() -> None:
    """Whenever during the step its output is released."""
    work = Inflation(GZIP, gzip.compress(bytes(256 * MIB), 1), 256 * MIB)
    half, enough = threading.Event(), threading.Event()

    def unpack() -> None:
        for _ in range(128):
            work.step()
        half.set()
        while not enough.is_set():
            work.step()

    thread = threading.Thread(target=unpack)
    thread.start()
    half.wait()
    enough.set()
    work.close()
    thread.join()
    assert len(work.result()) <= 2 * MIB


_FOUR_AT_ONCE = """
from concurrent.futures import ThreadPoolExecutor
import gzip
from penstock.system.allocator import tune_allocator
from penstock.http2.grpc import GZIP, InflateError, Inflation

def resident():
    with open("/proc/self/statm") as numbers:
        return int(numbers.read().split()[1]) * 4096

def unpack(_):
    work = Inflation(GZIP, packed, 160 << 20)
    try:
        while not work.step():
            pass
    except InflateError:
        pass

tune_allocator()
packed = gzip.compress(bytes(200 << 20), 1)
with ThreadPoolExecutor(4) as threads:
    list(threads.map(unpack, range(1)))
    before = resident()
    list(threads.map(unpack, range(4)))
    print(resident() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted as Linux does")
def test_memory_of_decompressed_data_is_released() -> None:
    """Four threads that held 160 MiB each; of smaller blocks the allocator keeps 64 MiB each."""
    output = subprocess.run([sys.executable, "-c", _FOUR_AT_ONCE], capture_output=True, check=True)
    assert int(output.stdout) < 256 * MIB
