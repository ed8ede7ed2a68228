"""The processes that decode large JSON."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import threading
from collections.abc import Iterator
from copy import copy
from pathlib import Path

import numpy as np
import pytest

from penstock.core.errors import InternalError, UnavailableError
from penstock.core.request import InferenceRequest, RequestScope
from penstock.core.tensor import DataType, Tensor
from penstock.gateway.json.helper import JsonHelper
from penstock.gateway.json.text import parse

_SHORT, _LONG = 1 << 20, 60 << 20


@pytest.fixture
def helper() -> Iterator[JsonHelper]:
    helper = JsonHelper()
    yield helper
    helper.close()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A pipe: who reads it waits until the test has written."""
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


async def _open(gate: Path) -> None:
    await asyncio.to_thread(gate.write_text, "opened")


async def test_calls_run_in_another_process_one_after_another(helper: JsonHelper) -> None:
    where = await asyncio.gather(*[helper.run(_SHORT, os.getpid) for _ in range(3)])
    assert len(set(where)) == 1
    assert where[0] != os.getpid()


async def test_requests_come_back_whole(helper: JsonHelper) -> None:
    array = np.arange(100_000, dtype=np.float32)
    tensors = {"IN": Tensor.from_numpy(array), "TEXT": Tensor(DataType.BYTES, (0,), b"")}
    scope = RequestScope(1.5)
    sent = InferenceRequest("m", inputs=tensors, parameters={"a": 1}, priority=3, scope=scope)
    got = await helper.run(_SHORT, copy, sent)
    np.testing.assert_array_equal(got.inputs["IN"].numpy(), array)
    assert got.inputs["TEXT"].datatype is DataType.BYTES
    assert (got.model_name, got.parameters, got.priority) == ("m", {"a": 1}, 3)
    assert got.scope.deadline == 1.5


async def test_errors_come_back_with_their_class_and_text(helper: JsonHelper) -> None:
    with pytest.raises(InternalError, match=r"Invalid value\. at 3$"):
        await helper.run(_SHORT, parse, b"[1,]")


@pytest.mark.parametrize("size", [_SHORT, _LONG])
async def test_death_of_the_process_is_an_error_of_the_call_that_ran(
    helper: JsonHelper, size: int
) -> None:
    with pytest.raises(UnavailableError, match="the process that decodes large JSON ended"):
        await helper.run(size, signal.raise_signal, signal.SIGKILL)
    assert await helper.run(size, parse, b"[1]") == [1]


async def test_process_that_was_killed_between_calls_is_replaced(helper: JsonHelper) -> None:
    first = await helper.run(_SHORT, os.getpid)
    os.kill(first, signal.SIGKILL)
    await asyncio.to_thread(os.waitid, os.P_PID, first, os.WEXITED | os.WNOWAIT)
    assert await helper.run(_SHORT, os.getpid) != first


async def test_short_text_does_not_wait_for_a_long_one(helper: JsonHelper, gate: Path) -> None:
    long = asyncio.create_task(helper.run(_LONG, Path.read_text, gate))
    assert await helper.run(_SHORT, parse, b"[1]") == [1]
    assert not long.done()
    await _open(gate)
    assert await long == "opened"


async def test_cancelled_call_leaves_others_their_answers(helper: JsonHelper, gate: Path) -> None:
    """One that runs ends unheard, one in the queue is dropped."""
    calls = [
        asyncio.create_task(helper.run(_SHORT, Path.read_text, gate)),
        asyncio.create_task(helper.run(_SHORT, signal.raise_signal, signal.SIGKILL)),
        asyncio.create_task(helper.run(_SHORT, parse, b"[1]")),
    ]
    opening = asyncio.create_task(_open(gate))
    await asyncio.sleep(0)
    for call in calls[:2]:
        call.cancel()
    assert await calls[2] == [1]
    await opening
    assert [call.cancelled() for call in calls] == [True, True, False]


async def test_close_ends_the_process_and_the_call_that_runs(gate: Path) -> None:
    helper = JsonHelper()
    pid = await helper.run(_SHORT, os.getpid)
    running = asyncio.create_task(helper.run(_SHORT, Path.read_text, gate))
    opened = await asyncio.to_thread(gate.open, "w")  # once it is opened for reading
    waiting = asyncio.create_task(helper.run(_SHORT, os.getpid))
    await asyncio.sleep(0)
    helper.close()
    for call in running, waiting:
        with pytest.raises(UnavailableError):
            await call
    opened.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_what_cannot_be_sent_back_is_an_error(helper: JsonHelper) -> None:
    with pytest.raises(InternalError, match="cannot be sent"):
        await helper.run(_SHORT, threading.Lock)
    assert await helper.run(_SHORT, abs, -1) == 1


async def test_a_lack_of_descriptors_is_told(
    helper: JsonHelper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacking(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    await helper.run(_SHORT, abs, -1)
    monkeypatch.setattr(os, "memfd_create", lacking)
    with pytest.raises(UnavailableError, match="decoded now: Too many open files"):
        await helper.run(_SHORT, abs, -1)
