"""Methods of an asyncio model without `async` run on one thread, beside the event loop."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from backends.python.process.test_asyncio_model import CONFIG, answer, outputs, request, until
from backends.python.scripted import FakeReply, FakeRuntime
from penstock.core.errors import InternalError
from penstock.model import Context, Model, Request, Response
from penstock_backends.python.process.asyncio_config import is_stream
from penstock_backends.python.process.asyncio_model import AsyncioModel


class Plain(Model):
    def infer(self, request: Request) -> Response:
        return Response({"OUT": request["IN"] * 2, "TEXT": threading.current_thread().name})


async def test_a_plain_infer_answers() -> None:
    [response] = outputs(await answer(Plain, 1, 2))
    assert response["OUT"] == [2, 4]
    assert response["TEXT"][0].startswith(b"model")


class Blocking(Model):
    """Blocks its thread until the test goes on; counts how many run at once."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.go_on = threading.Semaphore(0)
        self.running = 0
        self.seen: list[int] = []

    def infer(self, request: Request) -> Response:
        self.running += 1
        self.seen.append(self.running)
        self.entered.release()
        self.go_on.acquire()
        self.running -= 1
        return Response({"OUT": request["IN"]})

    def ready(self) -> bool:  # type: ignore[override]
        return True


async def test_the_event_loop_goes_on_and_requests_run_one_by_one() -> None:
    model = AsyncioModel(Blocking, CONFIG)
    blocking: Any = model._model
    replies = [FakeReply("OUT") for _ in range(3)]
    work = asyncio.create_task(
        model.execute([(reply, request(n)) for n, reply in enumerate(replies)])
    )
    await until(lambda: blocking.running)
    assert await model.ready()
    for _ in replies:
        blocking.go_on.release()
    await work
    assert [outputs(reply) for reply in replies] == [[{"OUT": [0]}], [{"OUT": [1]}], [{"OUT": [2]}]]
    assert blocking.seen == [1, 1, 1]


async def test_a_request_that_waits_for_the_thread_can_leave() -> None:
    model = AsyncioModel(Blocking, CONFIG)
    blocking: Any = model._model
    first, second = FakeReply("OUT"), FakeReply("OUT")
    work = asyncio.create_task(model.execute([(first, request(1)), (second, request(2))]))
    await until(lambda: blocking.running)
    second.cancel()
    await until(lambda: second.closed)
    blocking.go_on.release()
    await work
    assert blocking.seen == [1]
    assert outputs(first) == [{"OUT": [1]}]


class Stream(Model):
    closed = 0

    def infer(self, request: Request) -> Iterator[Response]:
        try:
            for number in request["IN"].tolist():
                yield Response({"OUT": [number]})
        finally:
            type(self).closed += 1


async def test_a_plain_generator_streams() -> None:
    assert is_stream(Stream)
    Stream.closed = 0
    assert outputs(await answer(Stream, 1, 2, 3)) == [{"OUT": [n]} for n in (1, 2, 3)]
    assert Stream.closed == 1


class Together(Model):
    def infer_batch(self, requests: Sequence[Request]) -> Sequence[Response]:  # type: ignore[override]
        return [Response({"OUT": each["IN"] + len(requests)}) for each in requests]


async def test_a_plain_infer_batch_answers() -> None:
    replies = [FakeReply("OUT"), FakeReply("OUT")]
    await AsyncioModel(Together, CONFIG).execute([(reply, request(1)) for reply in replies])
    assert [outputs(reply) for reply in replies] == [[{"OUT": [3]}]] * 2


class Diary(Model):
    def __init__(self) -> None:
        self.threads: list[int] = []

    def load(self, context: Context) -> None:  # type: ignore[override]
        self.threads.append(threading.get_ident())

    def infer(self, request: Request) -> Response:
        self.threads.append(threading.get_ident())
        return Response()

    def unload(self) -> None:  # type: ignore[override]
        self.threads.append(threading.get_ident())


async def test_load_and_unload_run_on_the_thread_of_infer() -> None:
    model = AsyncioModel(Diary, CONFIG)
    await model.load(Context("m_0", Path(), CONFIG))
    await model.execute([(FakeReply(), request(1))])
    await model.unload()
    diary: Any = model._model
    assert len(diary.threads) == 3
    assert set(diary.threads) != {threading.get_ident()}
    assert len(set(diary.threads)) == 1


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration("no"), SystemExit(1)])
async def test_what_a_plain_infer_raises_is_the_answer(
    process: FakeRuntime, error: BaseException
) -> None:
    class Failing(Model):
        def infer(self, request: Request) -> Response:
            raise error

    [response] = (await answer(Failing, 1)).responses
    found = response.error()
    assert found is not None
    assert found.core.code == InternalError.code
    assert len(process.logged) == 1


def plainly(method: Any) -> Any:
    @functools.wraps(method)
    def decorated(*arguments: Any) -> Any:
        asyncio.get_running_loop()
        return method(*arguments)

    return decorated


async def test_a_decorated_coroutine_stays_on_the_event_loop() -> None:
    class Decorated(Model):
        @plainly
        async def infer(self, request: Request) -> Response:
            return Response({"OUT": request["IN"]})

    assert outputs(await answer(Decorated, 5)) == [{"OUT": [5]}]


async def test_a_coroutine_that_a_plain_method_returns_is_awaited() -> None:
    class Returned(Model):
        def infer(self, request: Request) -> Any:
            return self._later(request)

        async def _later(self, request: Request) -> Response:
            return Response({"OUT": request["IN"]})

    assert outputs(await answer(Returned, 5)) == [{"OUT": [5]}]
