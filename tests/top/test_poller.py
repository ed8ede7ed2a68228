"""An endpoint is read on a thread, again and again."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from penstock_client.reading.fetch import FetchError
from penstock_client.top.poller import Poller

PATIENCE = 60.0


def test_readings_follow_each_other_also_after_failures() -> None:
    answers: Iterator[int | FetchError] = iter([1, FetchError("no answer"), 2, 3])
    seen: list[tuple[int | None, str]] = []
    ended = threading.Event()

    def read() -> int:
        answer = next(answers)
        if isinstance(answer, FetchError):
            raise answer
        return answer

    def told() -> None:
        now = poller.readings.now
        seen.append((None if now is None else now.value, poller.readings.error))
        if len(seen) == 4:
            poller.stop()
            ended.set()

    poller = Poller(read, 0.01, told)
    poller.start()
    assert ended.wait(PATIENCE)
    assert seen == [(1, ""), (1, "no answer"), (2, ""), (3, "")]
    before = poller.readings.before
    assert before is not None
    assert before.value == 2


def test_an_endpoint_that_is_asked_is_told_with_the_time() -> None:
    asked, answer = threading.Event(), threading.Event()

    def read() -> int:
        asked.set()
        answer.wait(PATIENCE)
        return 1

    began = time.monotonic()
    done = threading.Event()
    poller = Poller(read, 3600.0, done.set)
    waiting = [poller.waiting_since]
    poller.start()
    assert asked.wait(PATIENCE)
    since = poller.waiting_since
    assert since is not None
    assert began <= since <= time.monotonic()
    answer.set()
    assert done.wait(PATIENCE)
    assert [*waiting, poller.waiting_since] == [None, None]
    poller.stop()
