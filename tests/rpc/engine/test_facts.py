"""What the engine service tells of models and the server, and which model a call means."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from collections.abc import AsyncIterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import grpc
import pytest

from fakes import InstallBackend
from penstock.rpc.engine.servicer import TokenRate
from penstock.server.server import InferenceServer
from penstock.settings import GrpcSettings
from rpc.engine.scripted import (
    CONTEXT,
    WAITS,
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


async def test_the_model_as_a_router_sees_it(stub: Any) -> None:
    told = await stub.GetModelInfo(pb.GetModelInfoRequest())
    assert (told.served_model_name, told.max_context_length) == ("numbers", CONTEXT)
    assert (told.vocab_size, list(told.eos_token_ids), told.is_generation) == (5000, [2], True)


async def test_facts_that_were_not_known_are_asked_for_again(
    stub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of an engine elsewhere that was away."""
    facts = ScriptedBackend.facts
    monkeypatch.setattr(ScriptedBackend, "facts", replace(facts, context_length=0))
    told = [await stub.GetModelInfo(pb.GetModelInfoRequest())]
    monkeypatch.setattr(ScriptedBackend, "facts", facts)
    told.append(await stub.GetModelInfo(pb.GetModelInfoRequest()))
    assert [one.max_context_length for one in told] == [0, CONTEXT]


async def test_a_model_that_is_ready_is_healthy(stub: Any, server: InferenceServer) -> None:
    assert (await stub.HealthCheck(pb.HealthCheckRequest())).healthy
    await server._lifecycle.unload("numbers", unload_dependents=False)
    told = await stub.HealthCheck(pb.HealthCheckRequest())
    assert (told.healthy, told.message[:27]) == (False, "no language model is loaded")


async def test_loads_count_what_is_in_flight_at_once(stub: Any) -> None:
    calls = [stub.Generate(asking([WAITS, n]), timeout=30) for n in range(10)]
    for call in calls:
        await call.read()
    told = await stub.GetLoads(pb.GetLoadsRequest(include=["core"]))
    [load] = told.loads
    assert (load.num_running_reqs, load.num_waiting_reqs, load.num_total_reqs) == (8, 2, 10)
    assert (load.max_running_requests, load.token_usage) == (8, 0.25)
    info = await stub.GetServerInfo(pb.GetServerInfoRequest())
    assert (info.active_requests, info.is_paused, info.max_num_seqs) == (10, False, 8)
    for call in calls:
        call.cancel()


def test_tokens_before_the_first_look_are_none_of_the_rate() -> None:
    times = iter([5.0, 5.0, 6.0, 8.0])
    rate = TokenRate(lambda: next(times))
    assert [rate.of(counted) for counted in (9000.0, 9010.0, 9050.0)] == [0.0, 10.0, 20.0]


def test_a_counter_that_goes_back_is_counted_from_there() -> None:
    """As when one of two loaded versions goes."""
    times = iter([0.0, 0.0, 0.5, 2.0])
    rate = TokenRate(lambda: next(times))
    assert [rate.of(counted) for counted in (9000.0, 100.0, 140.0)] == [0.0, 0.0, 20.0]


async def test_the_tokenizer_comes_with_what_only_the_server_knows(
    stub: Any, server: InferenceServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokenizer.json").write_text("{}" + " " * 200_000)
    (tmp_path / "secret.txt").write_text("no")
    facts = replace(
        ScriptedBackend.facts,
        tokenizer=str(tmp_path / "tokenizer.json"),
        chat_template="{{ messages }}",
        special_tokens={"eos_token": "</s>"},
    )
    monkeypatch.setattr(ScriptedBackend, "facts", facts)
    pieces = [one async for one in stub.GetTokenizer(common.GetTokenizerRequest())]
    data = b"".join(one.data for one in pieces)
    assert pieces[-1].sha256 == sha256(data).hexdigest()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = ["chat_template.jinja", "tokenizer.json", "tokenizer_config.json"]
        assert sorted(archive.namelist()) == names
        assert archive.read("chat_template.jinja") == b"{{ messages }}"
        assert json.loads(archive.read("tokenizer_config.json"))["eos_token"] == "</s>"


@pytest.mark.parametrize(
    ("files", "template", "whole"),
    [
        (["tokenizer.json"], "{{ x }}", False),
        (["tokenizer.json", "tokenizer_config.json"], "{{ x }}", False),
        (["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"], "{{ x }}", True),
        (["tokenizer.json", "tokenizer_config.json"], None, True),
    ],
)
async def test_a_router_reads_files_itself_only_where_they_are_all_there(
    stub: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: list[str],
    template: str | None,
    whole: bool,
) -> None:
    for name in files:
        (tmp_path / name).write_text("{}")
    file = str(tmp_path / "tokenizer.json")
    facts = replace(ScriptedBackend.facts, tokenizer=file, chat_template=template)
    monkeypatch.setattr(ScriptedBackend, "facts", facts)
    told = await stub.GetModelInfo(pb.GetModelInfoRequest())
    assert told.tokenizer_path == (str(tmp_path) if whole else f"{file}#GetTokenizer")


async def test_a_model_without_files_of_a_tokenizer_says_so(stub: Any) -> None:
    call = stub.GetTokenizer(common.GetTokenizerRequest())
    code, text = await failure(call.read())
    assert (code, "not among the files" in text) == (grpc.StatusCode.UNIMPLEMENTED, True)


async def test_an_engine_without_kv_events_says_how_to_have_them(stub: Any) -> None:
    call = stub.SubscribeKvEvents(common.SubscribeKvEventsRequest())
    code, text = await failure(call.read())
    assert (code, "kv_events_config" in text) == (grpc.StatusCode.UNIMPLEMENTED, True)


# -- which model ----------------------------------------------------------------------------------


@pytest.fixture
async def two(tmp_path: Path, install_backend: InstallBackend) -> AsyncIterator[InferenceServer]:
    install_backend("scripted", ScriptedBackend)
    async with open_models(write_models(tmp_path / "models", "model_a", "model_b")) as server:
        yield server


async def test_of_several_models_one_has_to_be_named(
    two: InferenceServer, local: GrpcSettings
) -> None:
    async with stub_of(two, local) as stub:
        code, text = await failure(answers(stub, asking()))
        health = await stub.HealthCheck(pb.HealthCheckRequest())
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "(model_a, model_b): name one by the metadata 'penstock-model'" in text
    assert not health.healthy


async def test_models_that_have_told_are_not_asked_by_each_call(two: InferenceServer) -> None:
    made: list[Any] = []

    def make_task(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        made.append(work)
        return asyncio.Task(work, loop=loop, **options)

    asyncio.get_running_loop().set_task_factory(make_task)
    told = [await two.engines()]
    asked = len(made)
    told.append(await two.engines())
    asyncio.get_running_loop().set_task_factory(None)
    assert told == [["model_a", "model_b"]] * 2
    assert len(made) == asked


async def test_a_model_that_goes_is_no_longer_one_of_several(
    two: InferenceServer, local: GrpcSettings
) -> None:
    async with stub_of(two, local) as stub:
        several = await stub.HealthCheck(pb.HealthCheckRequest())
        await two._lifecycle.unload("model_a", unload_dependents=False)
        told = await stub.GetModelInfo(pb.GetModelInfoRequest())
    assert (several.healthy, told.served_model_name) == (False, "model_b")


async def test_metadata_names_the_model(two: InferenceServer, local: GrpcSettings) -> None:
    async with stub_of(two, local, "vllm:model_a") as stub:
        named = {
            name: await stub.GetModelInfo(
                pb.GetModelInfoRequest(), metadata=[("penstock-model", name)] if name else None
            )
            for name in ("", "model_b")
        }
        metadata = [("penstock-model", "none")]
        call = stub.GetModelInfo(pb.GetModelInfoRequest(), metadata=metadata)
        code, _ = await failure(call)
    assert {name: told.served_model_name for name, told in named.items()} == {
        "": "model_a",
        "model_b": "model_b",
    }
    assert code is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("authority", "model"),
    [
        ("model-b.example.com:8001", "model_b"),
        ("model_b.gpu", "model_b"),
        ("other.example.com:8001", "model_a"),
        ("127.0.0.1:8001", "model_a"),
        ("[::1]:8001", "model_a"),
    ],
)
async def test_the_first_part_of_a_hosts_name_names_the_model(
    two: InferenceServer, local: GrpcSettings, authority: str, model: str
) -> None:
    if local.transport == "grpcio":
        pytest.skip("grpc.aio does not tell servers by which name they were called")
    async with stub_of(two, local, "vllm:model_a") as stub:
        port = stub.port
        options = [("grpc.default_authority", authority)]
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
            told = await stub.of(channel).GetModelInfo(pb.GetModelInfoRequest())
    assert told.served_model_name == model


@pytest.mark.parametrize("name", ["model_a", "chat"])
async def test_polls_load_no_model(
    tmp_path: Path, install_backend: InstallBackend, local: GrpcSettings, name: str
) -> None:
    install_backend("scripted", ScriptedBackend)
    named = [("penstock-model", name)]
    models = write_models(tmp_path / "models", "model_a")
    async with open_models(models, explicit=True, demand=True) as server:
        server.releases.set("chat", {"targets": [{"model": "model_a"}]})
        async with stub_of(server, local) as stub:
            failed = [
                await failure(stub.GetLoads(pb.GetLoadsRequest(), metadata=named)),
                await failure(stub.GetServerInfo(pb.GetServerInfoRequest(), metadata=named)),
            ]
            assert not server.resident("model_a")
            await stub.GetModelInfo(pb.GetModelInfoRequest(), metadata=named)
            told = await stub.GetLoads(pb.GetLoadsRequest(), metadata=named)
    text = f"model '{name}' is not loaded"
    assert failed == [(grpc.StatusCode.UNAVAILABLE, text)] * 2
    assert told.loads[0].max_running_requests == 8


async def test_without_the_option_there_is_no_such_service(
    two: InferenceServer, local: GrpcSettings
) -> None:
    async with stub_of(two, local, "") as stub:
        code, _ = await failure(stub.HealthCheck(pb.HealthCheckRequest()))
    assert code is grpc.StatusCode.UNIMPLEMENTED
