"""gRPC behind an access policy, on both transports."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from access.issuer import Issuer, with_tokens
from access.models import OPEN, SECRET, guarded
from access.policies import ADMIN, ALICE, BOB, POLICY, gate
from penstock.access.gate import AccessGate
from penstock.access.key_set import KeySet
from penstock.access.policy_file import parse_policy
from penstock.access.tokens import TokenVerifier
from penstock.protocol import grpc_service_pb2 as pb
from penstock.protocol import health_pb2
from penstock.protocol.credentials import CREDENTIAL_HEADERS
from penstock.settings import GrpcSettings
from rpc.serving import HEALTH, Client, connected, infer_request

ONE = np.ones(1, np.float32)
NOBODY_MAY = POLICY.replace('"group:res*"', '"admin"')


def key(text: str) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {text}")]


async def refusal(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return refused.value.code(), refused.value.details() or ""


async def names(client: Client, who: str) -> list[str]:
    index = await client.call("RepositoryIndex", metadata=key(who))
    return [each.name for each in index.models]


async def test_a_call_is_let_in_by_its_key(local: GrpcSettings, repository: Path) -> None:
    request = infer_request(OPEN, IN=ONE)
    async with guarded(repository) as server, connected(server, local) as client:
        answer = await client.call("ModelInfer", request, metadata=key(ALICE))
        stranger = await refusal(client.call("ModelInfer", request))
        wrong = await refusal(client.call("ModelInfer", request, metadata=key("no")))
        other = await refusal(client.call("ModelInfer", request, metadata=key(BOB)))
    assert answer.model_name == OPEN
    assert stranger == wrong
    assert wrong[0] is grpc.StatusCode.UNAUTHENTICATED
    assert other[0] is grpc.StatusCode.PERMISSION_DENIED


@pytest.mark.parametrize("header", CREDENTIAL_HEADERS)
@pytest.mark.parametrize("other", [BOB, ALICE, "no"])
async def test_a_key_that_is_sent_twice_is_a_wrong_one(
    local: GrpcSettings, repository: Path, header: str, other: str
) -> None:
    """Else a proxy that reads the first one lets in whom the server takes for another."""
    scheme = "Bearer " if header == "authorization" else ""
    sent = [(header, f"{scheme}{ALICE}"), (header, f"{scheme}{other}")]
    async with guarded(repository) as server, connected(server, local) as client:
        codes = [
            (await refusal(client.call("ServerMetadata", metadata=metadata)))[0]
            for metadata in (sent, sent[::-1])
        ]
    assert codes == [grpc.StatusCode.UNAUTHENTICATED] * 2


@pytest.mark.parametrize("method", ["ModelMetadata", "ModelConfig", "ModelStatistics"])
async def test_a_model_that_is_not_seen_is_an_unknown_one(
    local: GrpcSettings, repository: Path, method: str
) -> None:
    request = getattr(pb, f"{method}Request")
    async with guarded(repository) as server, connected(server, local) as client:
        hidden = await refusal(client.call(method, request(name=SECRET), metadata=key(ALICE)))
        absent = await refusal(client.call(method, request(name="absent"), metadata=key(ALICE)))
        assert await client.call(method, request(name=SECRET), metadata=key(ADMIN))
    assert hidden == (absent[0], absent[1].replace("absent", SECRET))


async def test_inference_of_a_hidden_model_is_that_of_an_unknown_one(
    local: GrpcSettings, repository: Path
) -> None:
    async with guarded(repository) as server, connected(server, local) as client:
        hidden = await refusal(
            client.call("ModelInfer", infer_request(SECRET, IN=ONE), metadata=key(ALICE))
        )
        absent = await refusal(
            client.call("ModelInfer", infer_request("absent", IN=ONE), metadata=key(ALICE))
        )
    assert hidden == (absent[0], absent[1].replace("absent", SECRET))


async def test_lists_have_what_the_caller_sees(local: GrpcSettings, repository: Path) -> None:
    async with guarded(repository) as server, connected(server, local) as client:
        assert await names(client, ALICE) == [OPEN]
        assert await names(client, ADMIN) == [OPEN, SECRET]
        counted = await client.call("ModelStatistics", metadata=key(ALICE))
        assert [one.name for one in counted.model_stats] == [OPEN]


async def listed(client: Client, who: str) -> set[str]:
    call = client.channel.unary_unary(
        f"/{HEALTH}/List",
        request_serializer=health_pb2.HealthListRequest.SerializeToString,
        response_deserializer=health_pb2.HealthListResponse.FromString,
    )
    return set((await call(health_pb2.HealthListRequest(), metadata=key(who))).statuses)


async def test_health_lists_what_the_caller_sees(local: GrpcSettings, repository: Path) -> None:
    async with guarded(repository) as server, connected(server, local) as client:
        mine, all_of_them = [await listed(client, who) for who in (ALICE, ADMIN)]
    assert OPEN in mine
    assert all_of_them - mine == {SECRET}


async def test_each_request_of_a_stream_is_checked(local: GrpcSettings, repository: Path) -> None:
    requests = [infer_request(name, id=name, IN=ONE) for name in (OPEN, SECRET, OPEN)]
    async with guarded(repository) as server, connected(server, local) as client:
        answers = await client.conversation(requests, metadata=key(ALICE))
    assert [bool(each.error_message) for each in answers] == [False, True, False]
    assert answers[1].error_message.endswith(f"Request for unknown model: '{SECRET}' is not found")


async def test_a_stream_ends_at_the_next_request_when_its_caller_is_let_in_no_more(
    local: GrpcSettings, repository: Path
) -> None:
    asked = gate()
    async with guarded(repository, asked) as server, connected(server, local) as client:
        stream = client.stream(metadata=key(ALICE))
        await stream.write(infer_request(OPEN, id="1", IN=ONE))
        assert (await stream.read()).infer_response.id == "1"
        asked.policy = parse_policy(NOBODY_MAY)
        await stream.write(infer_request(OPEN, id="2", IN=ONE))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_new_policy_holds_on_connections_that_are_open(
    local: GrpcSettings, repository: Path
) -> None:
    """Calls with equal metadata share what was decoded of it, and not what was decided."""
    asked = gate()
    async with guarded(repository, asked) as server, connected(server, local) as client:
        assert await names(client, ALICE) == [OPEN]
        asked.policy = parse_policy(NOBODY_MAY)
        refused = await refusal(client.call("RepositoryIndex", metadata=key(ALICE)))
        asked.policy = parse_policy(POLICY)
        assert await names(client, ALICE) == [OPEN]
    assert refused[0] is grpc.StatusCode.PERMISSION_DENIED


async def test_models_of_other_names_are_not_changed(local: GrpcSettings, repository: Path) -> None:
    request = pb.RepositoryModelLoadRequest
    async with (
        guarded(repository, explicit=True) as server,
        connected(server, local) as client,
    ):
        await client.call("RepositoryModelLoad", request(model_name=OPEN), metadata=key(ALICE))
        for name in (SECRET, "absent", f" {SECRET}"):
            refused = await refusal(
                client.call("RepositoryModelLoad", request(model_name=name), metadata=key(ALICE))
            )
            assert refused[0] is grpc.StatusCode.PERMISSION_DENIED


async def test_a_stream_ends_at_the_first_request_after_its_token_has_expired(
    local: GrpcSettings, repository: Path
) -> None:
    issued, clock = Issuer(), [time.time()]
    policy = parse_policy(with_tokens("keys.json"))
    assert policy.tokens is not None
    keys = KeySet.parse(issued.key_set())
    asked = AccessGate(policy, TokenVerifier(policy.tokens, policy, keys, lambda: clock[0]))
    metadata = key(issued.token(exp=clock[0] + 10))
    async with guarded(repository, asked) as server, connected(server, local) as client:
        stream = client.stream(metadata=metadata)
        for number in ("1", "2"):
            await stream.write(infer_request(OPEN, id=number, IN=ONE))
            assert (await stream.read()).infer_response.id == number
        clock[0] += 41  # beyond the leeway
        await stream.write(infer_request(OPEN, id="3", IN=ONE))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stream.read()
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
