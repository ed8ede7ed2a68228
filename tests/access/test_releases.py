"""`penstock.v1.Releases` over both transports, by callers who see some aliases or all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from access.models import OPEN, SECRET, guarded
from access.policies import ADMIN, ALICE, bearer
from penstock.core.exit_deadline import ExitDeadline
from penstock.protocol import releases_pb2 as pb
from penstock.protocol.releases_pb2_grpc import ReleasesStub
from penstock.rpc.server import open_grpc
from penstock.settings import GrpcSettings
from rpc.serving import channel_to

_ALICE, _ADMIN = (tuple(bearer(key).items()) for key in (ALICE, ADMIN))


@asynccontextmanager
async def _serving(repository: Path, local: GrpcSettings) -> AsyncIterator[Any]:
    async with guarded(repository, explicit=True) as server:
        server_itself: Any = server
        for name in (OPEN, SECRET):
            await server_itself._server.load(name, {})
        async with (
            open_grpc(server, local, ExitDeadline(2)) as port,
            channel_to(port) as channel,
        ):
            yield ReleasesStub(channel)


@asynccontextmanager
async def _watching(stub: Any, caller: Any) -> AsyncIterator[asyncio.Future[Any]]:
    """The first change that a caller is told."""
    call = stub.AliasWatch(pb.AliasWatchRequest(), metadata=caller)
    assert not (await call.read()).name
    first = asyncio.ensure_future(call.read())
    try:
        yield first
    finally:
        call.cancel()
        await asyncio.wait([first])


def _set(name: str, *models: str) -> pb.AliasSetRequest:
    targets = [
        pb.AliasTarget(model=model, weight=0 if place else 100)
        for place, model in enumerate(models)
    ]
    return pb.AliasSetRequest(name=name, definition=pb.AliasDefinition(targets=targets))


async def _code(call: Any) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return str(refused.value.code().name)


async def test_an_alias_is_set_promoted_and_told(repository: Path, local: GrpcSettings) -> None:
    async with _serving(repository, local) as stub:
        async with _watching(stub, _ADMIN) as first:
            shown = await stub.AliasSet(_set("open-a", OPEN, SECRET), metadata=_ADMIN)
            assert [one.target for one in shown.traffic] == [OPEN, SECRET]
            told = await asyncio.wait_for(first, 10)
        assert (told.name, told.change.why) == ("open-a", "set by a request")
        plan = pb.AliasPromoteRequest(name="open-a", target=SECRET, steps=[1, 5], every=60)
        shown = await stub.AliasPromote(plan, metadata=_ADMIN)
        assert [one.weight for one in shown.definition.targets] == [99, 1]
        assert (shown.promotion.step, [*shown.promotion.steps]) == (1, [1, 5])
        shown = await stub.AliasRollback(pb.AliasRollbackRequest(name="open-a"), metadata=_ADMIN)
        assert shown.history[-1].cause == "request"
        listed = await stub.AliasList(pb.AliasListRequest(), metadata=_ADMIN)
        assert [one.name for one in listed.aliases] == ["open-a"]
        await stub.AliasRemove(pb.AliasRemoveRequest(name="open-a"), metadata=_ADMIN)
        gone = await stub.AliasShow(pb.AliasShowRequest(name="open-a"), metadata=_ADMIN)
        assert not gone.HasField("definition")
        assert len(gone.history) == 4
        wrong = stub.AliasSet(pb.AliasSetRequest(name="open-a"), metadata=_ADMIN)
        assert await _code(wrong) == "INVALID_ARGUMENT"


async def test_who_does_not_see_an_alias_is_told_nothing_of_it(
    repository: Path, local: GrpcSettings
) -> None:
    async with _serving(repository, local) as stub:
        async with _watching(stub, _ALICE) as first:
            await stub.AliasSet(_set("secret-a", OPEN), metadata=_ADMIN)
            await stub.AliasSet(_set("open-a", OPEN), metadata=_ALICE)
            assert (await asyncio.wait_for(first, 10)).name == "open-a"
        listed = await stub.AliasList(pb.AliasListRequest(), metadata=_ALICE)
        assert [one.name for one in listed.aliases] == ["open-a"]
        hidden = stub.AliasShow(pb.AliasShowRequest(name="secret-a"), metadata=_ALICE)
        assert await _code(hidden) == "NOT_FOUND"
        for call in (
            stub.AliasSet(_set("open-a", SECRET), metadata=_ALICE),
            stub.AliasPromote(pb.AliasPromoteRequest(name="secret-a"), metadata=_ALICE),
            stub.AliasRollback(pb.AliasRollbackRequest(name="secret-a"), metadata=_ALICE),
            stub.AliasRemove(pb.AliasRemoveRequest(name="secret-a"), metadata=_ALICE),
        ):
            assert await _code(call) == "PERMISSION_DENIED"


async def test_a_watch_ends_with_the_server(repository: Path, local: GrpcSettings) -> None:
    async with guarded(repository) as server:
        inner: Any = server
        async with (
            open_grpc(server, local, ExitDeadline(2)) as port,
            channel_to(port) as channel,
        ):
            call: Any = ReleasesStub(channel).AliasWatch(pb.AliasWatchRequest(), metadata=_ADMIN)
            assert not (await call.read()).name
            await inner._server.finish_sequences(ExitDeadline(1))
            code = await asyncio.wait_for(call.code(), 10)
            assert code is grpc.StatusCode.UNAVAILABLE


async def test_an_alias_that_is_not_seen_is_not_named(
    repository: Path, local: GrpcSettings
) -> None:
    async with _serving(repository, local) as stub:
        await stub.AliasSet(_set("hidden", OPEN, "open-later"), metadata=_ADMIN)
        refusals = []
        for caller in (_ALICE, _ADMIN):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.AliasSet(_set("open-later", OPEN), metadata=caller)
            refusals.append(refused.value.details())
    assert refusals == [
        "alias 'open-later' is the name of a target of another alias",
        "alias 'open-later' is the name of a target of alias 'hidden'",
    ]
