"""What nobody should send, and what nobody should write into a file."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import grpc
import httpx
import pytest

from access.issuer import Issuer, with_tokens
from access.models import OPEN, guarded
from access.policies import ALICE, POLICY, bearer, gate
from gateway.serving import LOCAL
from penstock.access.gate import AccessGate
from penstock.access.globs import Glob
from penstock.access.key_set import KeySet
from penstock.access.policy_file import parse_policy
from penstock.access.tokens import TokenVerifier
from penstock.core.errors import ConfigError, UnauthenticatedError
from penstock.core.exit_deadline import ExitDeadline
from penstock.gateway.app import open_gateway
from penstock.settings import Feature, GrpcSettings
from rpc.serving import connected

MIB = 1 << 20
ISSUED = Issuer()


def believing(keys: bytes | None = None) -> AccessGate:
    """A gate that believes the issuer."""
    policy = parse_policy(with_tokens("keys.json"))
    assert policy.tokens is not None
    return AccessGate(
        policy, TokenVerifier(policy.tokens, policy, KeySet.parse(keys or ISSUED.key_set()))
    )


@pytest.mark.parametrize(
    "sent",
    ["a" * MIB, "a." * (MIB // 2), f"{'a' * MIB}.b.c", ISSUED.token(more="x" * MIB), "é" * MIB],
    ids=["a word", "dots", "a head", "a token", "letters"],
)
@pytest.mark.parametrize("header", ["authorization", "x-api-key", "api-key"])
def test_a_token_of_a_mebibyte_is_none(sent: str, header: str) -> None:
    asked = believing()
    text = f"Bearer {sent}" if header == "authorization" else sent
    for _ in range(2):
        with pytest.raises(UnauthenticatedError):
            asked.permit({header: text}, Feature.INFERENCE)


async def test_a_header_of_a_mebibyte_is_refused_by_http(repository: Path) -> None:
    async with (
        guarded(repository) as server,
        open_gateway(server, LOCAL, ExitDeadline(2)) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        try:
            answer = await client.get(f"/v2/models/{OPEN}", headers=bearer("a" * MIB))
        except httpx.TransportError:  # it was closed while the rest was being sent
            pass
        else:
            assert answer.status_code == 431
        assert (await client.get(f"/v2/models/{OPEN}", headers=bearer(ALICE))).status_code == 200


async def test_metadata_of_a_mebibyte_is_refused_by_grpc(
    local: GrpcSettings, repository: Path
) -> None:
    async with guarded(repository) as server, connected(server, local) as client:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.call("RepositoryIndex", metadata=[*bearer("a" * MIB).items()])
        assert refused.value.code() in (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            grpc.StatusCode.UNAVAILABLE,
            grpc.StatusCode.INTERNAL,
        )
        assert await client.call("RepositoryIndex", metadata=[*bearer(ALICE).items()])


def test_unknown_keys_by_the_thousand_are_asked_for_once_and_leave_nothing() -> None:
    asked = believing()
    assert asked.tokens is not None
    for number in range(20_000):
        head = json.dumps({"alg": "ES256", "kid": f"{number}"}).encode()
        token = f"{base64.urlsafe_b64encode(head).rstrip(b'=').decode()}.e30.e30"
        assert asked.caller(bearer(token)) == ""
    assert asked.tokens.wants_keys
    assert asked.tokens.keys.key("ec", "ES256")


def test_a_key_of_a_set_is_not_the_key_of_a_policy() -> None:
    """The hash of a key, sent as the key, is none."""
    hashed = POLICY.split('"sha256:')[1][:64]
    asked = gate()
    assert [asked.caller(bearer(text)) for text in (hashed, f"sha256:{hashed}")] == ["", ""]


def test_keys_of_a_set_with_the_same_name_do_not_stand_in_for_each_other() -> None:
    """The last of equal ids counts; a token of the other is not believed."""
    other = Issuer()
    both = {"keys": [*json.loads(other.key_set())["keys"], *json.loads(ISSUED.key_set())["keys"]]}
    asked = believing(json.dumps(both).encode())
    assert asked.caller(bearer(ISSUED.token())) == "alice"
    assert asked.caller(bearer(other.token())) == ""


@pytest.mark.parametrize("ends", [-600, -31])
def test_a_clock_that_is_minutes_off_lets_nobody_in(ends: int) -> None:
    assert believing().caller(bearer(ISSUED.token(exp=time.time() + ends))) == ""
    early = ISSUED.token(nbf=time.time() - ends, exp=time.time() + 3600)
    assert believing().caller(bearer(early)) == ""


def test_a_thousand_patterns_of_stars_are_matched_at_once() -> None:
    """Each name is decided once, and then remembered."""
    rules = ", ".join(f'"{"a*" * 100}{number}"' for number in range(1000))
    text = POLICY.replace('models = ["open*"]', f"models = [{rules}]")
    permit = gate(text).permit(bearer(ALICE), Feature.INFERENCE)
    names = ["a" * 200 + f"{number}" for number in range(1000)]
    assert all(permit.sees(name) for name in names)
    assert not permit.sees("a" * 256)
    assert Glob("*" * 256).fits("a" * 100_000)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("[callers.zoe]\nkey = []", "unknown key 'callers.zoe.key'"),
        ("[callers.zoe]\ncertificate = []", "unknown key 'callers.zoe.certificate'"),
        ("[callers.zoe]\ncertificates = 'a'", "must be a list of strings"),
        ('[[rules]]\ncallers = ["zoe"]\ncalls = ["*"]', "which no caller of the file is called"),
        ('[[rules]]\ncallers = ["group:zoe"]\ncalls = ["*"]', "which no group of the file is"),
        ('[[rules]]\ncallers = ["alice"]\ncalls = ["infer"]', "did you mean 'inference'?"),
        (
            '[[rules]]\ncallers = ["alice"]\ncalls = ["*"]\nmodel = ["a"]',
            "'rules[3].mo",
        ),
        ("[rule]", "unknown key 'rule'; did you mean 'rules'?"),
    ],
)
def test_unknown_names_in_a_policy_are_refused(line: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_policy(f"{POLICY}\n{line}")
    assert told in str(refused.value)
