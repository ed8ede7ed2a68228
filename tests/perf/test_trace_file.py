"""Files with the times of requests: whatever is in them is read, or refused with its place."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_client.perf.errors import PerfError
from penstock_client.perf.trace_file import read_intervals, read_trace

_NUMBERS: st.SearchStrategy[object] = (
    st.integers() | st.floats() | st.sampled_from([10**400, "7", None, [], True])
)
_ENTRIES = st.dictionaries(
    st.sampled_from(["timestamp", "input_length", "output_length", "x"]), _NUMBERS
)
_LINES = st.lists(_ENTRIES | _NUMBERS, max_size=4)


def _read(read: Callable[[], tuple[float, ...]]) -> tuple[float, ...] | str:
    """The times of a file, or why it is refused."""
    try:
        return read()
    except PerfError as refused:
        return str(refused)


@given(_LINES)
def test_any_trace_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, entries: list[object]
) -> None:
    path = tmp_path_factory.getbasetemp() / "trace"
    path.write_text("\n".join(map(json.dumps, entries)))
    found = _read(lambda: read_trace(path).times)
    if isinstance(found, str):
        assert str(path) in found
    else:
        assert len(found) == len(entries)
        assert 0 == min(found) <= max(found) < float("inf")


@given(st.lists(st.integers() | st.sampled_from([10**400, 0.5, "x"]), max_size=4))
def test_any_intervals_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, lines: list[object]
) -> None:
    path = tmp_path_factory.getbasetemp() / "intervals"
    path.write_text("\n".join(map(str, lines)))
    found = _read(lambda: read_intervals(path))
    if isinstance(found, str):
        assert str(path) in found
    else:
        assert len(found) == len(lines)
        assert min(found) >= 0 < sum(found)
