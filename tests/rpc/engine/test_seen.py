"""Routers behind an access policy: they find the models that they see, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from access.models import OPEN, SECRET
from access.policies import ADMIN, ALICE, POLICY, bearer, gate
from fakes import InstallBackend
from penstock.access.policy_file import parse_policy
from penstock.server.seen_models import seen
from penstock.settings import GrpcSettings
from rpc.engine.publisher import Publisher
from rpc.engine.scripted import (
    ScriptedBackend,
    answers,
    asking,
    common,
    failure,
    pb,
    stub_of,
    write_models,
)
from rpc.serving import open_models


async def test_a_model_that_is_not_seen_is_none(
    tmp_path: Path, install_backend: InstallBackend, local: GrpcSettings
) -> None:
    install_backend("scripted", ScriptedBackend)
    alice: Any = tuple(bearer(ALICE).items())
    async with open_models(write_models(tmp_path / "models", OPEN, SECRET)) as server:
        server.access = gate()
        async with stub_of(seen(server), local) as stub:
            told = await stub.GetModelInfo(pb.GetModelInfoRequest(), metadata=alice)
            named = (*alice, ("penstock-model", SECRET))
            code, _ = await failure(answers(stub, asking(), metadata=named))
            *_, end = await answers(stub, asking(), metadata=alice)
    assert (told.served_model_name, code) == (OPEN, grpc.StatusCode.NOT_FOUND)
    assert end.complete.finish_reason == "length"


async def test_the_model_of_the_setting_is_told_to_those_who_see_it(
    tmp_path: Path, install_backend: InstallBackend, local: GrpcSettings
) -> None:
    install_backend("scripted", ScriptedBackend)
    async with open_models(write_models(tmp_path / "models", OPEN, SECRET)) as server:
        server.access = gate()
        told = []
        async with stub_of(seen(server), local, f"vllm:{SECRET}") as stub:
            for key in (ALICE, ADMIN):
                caller: Any = tuple(bearer(key).items())
                health = await stub.HealthCheck(pb.HealthCheckRequest(), metadata=caller)
                info = await stub.GetModelInfo(pb.GetModelInfoRequest(), metadata=caller)
                told.append((health.message, info.served_model_name))
    assert told == [(f"model '{name}' is ready", name) for name in (OPEN, SECRET)]


async def test_events_end_with_a_model_that_is_seen_no_more(
    tmp_path: Path, install_backend: InstallBackend, local: GrpcSettings, publisher: Publisher
) -> None:
    install_backend("scripted", ScriptedBackend)
    asked = gate()
    admin: Any = tuple(bearer(ADMIN).items())
    only = POLICY.replace('calls = ["*"]', 'calls = ["*"]\nmodels = ["other"]')
    async with open_models(write_models(tmp_path / "models", OPEN)) as server:
        server.access = asked
        async with stub_of(seen(server), local) as stub:
            call = stub.SubscribeKvEvents(common.SubscribeKvEventsRequest(), metadata=admin)
            await call.initial_metadata()
            assert await publisher.subscriber()
            await publisher.publish(1, {"ts": 1.0, "events": []})
            assert (await call.read()).sequence_number == 1
            asked.policy = parse_policy(only)
            code, number = None, 1
            while code is None:
                number += 1
                await publisher.publish(number, {"ts": 1.0, "events": []})
                code = await look(call)
    assert code is grpc.StatusCode.NOT_FOUND


async def look(call: Any) -> grpc.StatusCode | None:
    """The code of a stream that ends instead of answering."""
    try:
        return None if await call.read() else grpc.StatusCode.OK
    except grpc.aio.AioRpcError as error:
        return error.code()
