"""Exchanges over HTTP with the application of a model on a thread of the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from fakes import model_config, until
from hosting.hosted.talker import Talker
from models.serving.thread_instance.executions import thread_instance
from penstock.core.errors import UnavailableError
from penstock.core.http_exchange import HttpExchange
from penstock.core.request import ExchangePart, InferenceRequest, RequestScope
from penstock.core.stream import ResponseStream
from penstock.inflight.statistics import Statistics
from penstock.models.serving.loaded_model import LoadedModel, ModelParts
from penstock.scheduling.direct import DirectScheduler


@pytest_asyncio.fixture
async def model() -> AsyncIterator[LoadedModel]:
    instance = thread_instance(Talker)
    await instance.start()
    scheduler = DirectScheduler([instance])
    model = LoadedModel(ModelParts(model_config(), 1, scheduler, Statistics()), [instance])
    yield model
    await model.abort()


def begin(model: LoadedModel, path: str, query: str = "") -> ResponseStream:
    exchange = HttpExchange("POST", path, query)
    return model.exchange(InferenceRequest("m", exchange=exchange, scope=RequestScope()))


async def body(stream: ResponseStream) -> bytes:
    return b"".join([part.body async for part in stream if isinstance(part, ExchangePart)])


async def test_application_gives_the_model_requests_through_its_scheduler(
    model: LoadedModel,
) -> None:
    assert await body(begin(model, "/infer")) == b"[[4, 2]]"
    statistics = model.statistics  # of the request with tensors: the exchange is not another one
    assert statistics.success.count == statistics.inference_count == 1
    assert statistics.execution_count == 1


async def test_application_waits_for_a_slow_reader(model: LoadedModel) -> None:
    stream = begin(model, "/count", "500")
    await until(lambda: stream.backlog == 26)  # 25 of 1,000 bytes, and the head
    await asyncio.sleep(0)
    assert stream.backlog == 26
    assert len(await body(stream)) == 500_000


async def test_stop_ends_an_exchange(model: LoadedModel) -> None:
    stream = begin(model, "/stubborn")
    await until(lambda: stream.backlog == 2)
    await model.abort()
    with pytest.raises(UnavailableError, match="stopped"):
        await body(stream)
