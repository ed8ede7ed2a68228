"""A warm call asks the policy once; a stream asks with each of its requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import grpc
import numpy as np
import pytest

from access.issuer import Issuer, with_tokens
from access.models import OPEN, guarded
from access.policies import ALICE, POLICY, SECOND, bearer, gate
from penstock.access.gate import AccessGate
from penstock.access.key_set import KeySet
from penstock.access.policy import Permit
from penstock.access.policy_file import parse_policy
from penstock.access.tokens import TokenVerifier
from penstock.core.errors import UnauthenticatedError
from penstock.settings import Feature, GrpcSettings
from rpc.serving import connected, infer_request

LOCAL = GrpcSettings(address="127.0.0.1", port=0)
REQUEST = infer_request(OPEN, IN=np.ones(1, np.float32))
METADATA = [*bearer(ALICE).items()]

COUNTED = pytest.mark.interpreted("its gate that counts is no compiled one, which servers demand")


class Counting:
    """A gate that counts how often it is asked."""

    reload_failures = 0

    def __init__(self, asked: AccessGate) -> None:
        self.count = 0
        self._asked = asked

    def permit(
        self, headers: Mapping[str, str], calls: Feature, certificate: Sequence[str] = ()
    ) -> Permit:
        self.count += 1
        return self._asked.permit(headers, calls, certificate)


@COUNTED
async def test_a_unary_call_asks_once(repository: Path) -> None:
    asked = Counting(gate())
    async with guarded(repository, asked) as server, connected(server, LOCAL) as client:  # type: ignore[arg-type]
        for _ in range(3):
            await client.call("ModelInfer", REQUEST, metadata=METADATA)
    assert asked.count == 3


@COUNTED
async def test_a_stream_asks_as_it_opens_and_with_each_request(repository: Path) -> None:
    asked = Counting(gate())
    async with guarded(repository, asked) as server, connected(server, LOCAL) as client:  # type: ignore[arg-type]
        await client.conversation([REQUEST] * 3, metadata=METADATA)
    assert asked.count == 4


@COUNTED
async def test_a_call_that_is_refused_says_so(repository: Path) -> None:
    asked = Counting(gate())
    async with guarded(repository, asked) as server, connected(server, LOCAL) as client:  # type: ignore[arg-type]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.call("ModelInfer", REQUEST)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


# -- what is remembered of callers -----------------------------------------------------------------


def test_a_caller_is_forgotten_with_its_policy() -> None:
    asked = gate()
    assert asked.caller(bearer(ALICE)) == asked.caller(bearer(ALICE)) == "alice"
    asked.policy = parse_policy(POLICY.replace("callers.alice", "callers.anna"))
    assert asked.caller(bearer(ALICE)) == "anna"
    assert asked.caller({"x-api-key": ALICE}) == "anna"


def test_a_key_that_was_revoked_is_none_at_once() -> None:
    asked = gate()
    headers = ({"x-api-key": SECOND}, bearer(SECOND))
    assert [asked.caller(each) for each in headers * 2] == ["alice"] * 4
    asked.policy = parse_policy(POLICY.replace(f', "{POLICY.split(chr(34))[3]}"', ""))
    assert [asked.caller(each) for each in headers * 2] == [""] * 4


def test_a_header_is_remembered_for_what_it_was() -> None:
    """`Bearer KEY` as an API key is no key; another scheme leaves the API key to be looked at."""
    asked = gate()
    assert asked.caller(bearer(ALICE)) == "alice"
    assert asked.caller({"x-api-key": f"Bearer {ALICE}"}) == ""
    basic = {"authorization": "Basic x"}
    assert asked.caller({**basic, "x-api-key": ALICE}) == "alice"
    assert asked.caller(basic) == ""


@pytest.mark.parametrize("sent", ["Bearer", "Bearer ", "bearer   "])
def test_an_empty_bearer_is_a_wrong_key(sent: str) -> None:
    """An API key beside it counts no more than beside any wrong one."""
    assert gate().caller({"authorization": sent, "x-api-key": ALICE}) == ""


def test_very_many_callers_are_not_all_remembered() -> None:
    asked = gate()
    for number in range(3000):
        assert asked.caller({"authorization": f"bearer {' ' * number}{ALICE}"}) == "alice"


def test_a_token_is_forgotten_with_the_keys() -> None:
    issued = Issuer()
    policy = parse_policy(with_tokens("keys.json"))
    assert policy.tokens is not None
    verifier = TokenVerifier(policy.tokens, policy, KeySet.parse(issued.key_set()))
    asked = AccessGate(policy, verifier)
    token = bearer(issued.token())
    assert asked.permit(token, Feature.INFERENCE).caller == "alice"
    verifier.replace_keys(KeySet.parse(Issuer().key_set()))
    with pytest.raises(UnauthenticatedError):
        asked.permit(token, Feature.INFERENCE)
