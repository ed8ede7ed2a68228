"""A model whose engine sleeps keeps its requests."""

from __future__ import annotations

import pytest

from fakes import FakeInstance, make_model, make_request, marks
from penstock.core.errors import UnavailableError


async def test_requests_are_kept_until_it_is_awake() -> None:
    told: list[int] = []
    model = make_model(FakeInstance())
    model.hold(lambda: told.append(1))
    streams = [model.infer(make_request(name)) for name in ("a", "b")]
    streams[0].close()
    assert told == [1]
    assert await model.ready()
    model.resume()
    model.resume()
    assert await marks(streams[1]) == ["b"]


async def test_an_end_fails_what_is_kept() -> None:
    model = make_model(FakeInstance())
    model.hold(lambda: None)
    stream = model.infer(make_request("a"))
    await model.abort()
    with pytest.raises(UnavailableError):
        await marks(stream)


async def test_every_instance_is_shrunk() -> None:
    instances = [FakeInstance(), FakeInstance()]
    make_model(*instances).shrink()
    assert [one.commands for one in instances] == [[("shrink", {})]] * 2
