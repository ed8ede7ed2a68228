"""JSON Web Tokens: who is believed, and what is not."""

from __future__ import annotations

import base64
import hmac
import json
import sys
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from access.issuer import AUDIENCE, ISSUER, Issuer, with_tokens
from penstock.access.key_set import FetchPlan, KeySet
from penstock.access.policy import key_hash
from penstock.access.policy_file import parse_policy
from penstock.access.tokens import TokenVerifier
from penstock.core.errors import ConfigError
from penstock.settings import Feature

ISSUED = Issuer()


class Clock:
    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        return self.now


def verifier(more: str = "", keys: bytes = b"", clock: Clock | None = None) -> TokenVerifier:
    policy = parse_policy(with_tokens("keys.json", more=more))
    assert policy.tokens is not None
    found = KeySet.parse(keys or ISSUED.key_set())
    return TokenVerifier(policy.tokens, policy, found, clock or time.time)


def named(token: str, by: TokenVerifier | None = None) -> str | None:
    caller = (by or verifier()).caller(token, key_hash(token))
    return None if caller is None else caller.name


def unsigned(header: Any, claims: Any = None, signature: bytes = b"x") -> str:
    parts = [json.dumps(each).encode() for each in (header, claims or {"sub": "alice"})]
    return ".".join(
        base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in (*parts, signature)
    )


@pytest.mark.parametrize(("kid", "algorithm"), [("rsa", "RS256"), ("ec", "ES256"), ("ed", "EdDSA")])
def test_a_token_names_its_caller(kid: str, algorithm: str) -> None:
    assert named(ISSUED.token(kid, algorithm)) == "alice"


def test_groups_of_a_token_are_those_of_rules() -> None:
    token = ISSUED.token(sub="new", groups=["research"])
    caller = verifier().caller(token, key_hash(token))
    assert caller is not None
    permit = caller.permit(Feature.INFERENCE)
    assert permit is not None
    assert permit.sees("open")
    assert caller.permit(Feature.TRACE) is None


@pytest.mark.parametrize(
    ("more", "claims", "name", "groups"),
    [
        ('prefix = "jwt:"', {}, "jwt:alice", ["research"]),
        ('name_claim = "client.id"', {"client": {"id": "c"}}, "c", ["research"]),
        ('name_claim = "client.id"', {"client.id": "c"}, "c", ["research"]),
        ('groups_claim = "scope"', {"scope": "a b"}, "alice", ["a", "b"]),
        ('groups_claim = "realm.roles"', {"realm": {"roles": ["r", 1]}}, "alice", ["r"]),
        ('groups_claim = "none"', {}, "alice", []),
        ('groups_claim = "sub.x"', {}, "alice", []),
    ],
)
def test_claims_are_mapped(more: str, claims: dict[str, Any], name: str, groups: list[str]) -> None:
    token = ISSUED.token(**claims)
    caller = verifier(more).caller(token, key_hash(token))
    assert caller is not None
    assert (caller.name, list(caller.groups)) == (name, groups)


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": None},
        {"aud": None},
        {"iss": None},
        {"exp": time.time() - 600},
        {"exp": "soon"},
        {"nbf": time.time() + 1e6},  # long after a whole run
        {"iat": time.time() + 1e6},
        {"aud": "another"},
        {"iss": "https://another"},
        {"sub": None},
        {"sub": ""},
        {"sub": "s" * 300},
        {"sub": "admin\nI1130 a line of the log"},
        {"sub": "half of a pair \ud800"},
    ],
)
def test_a_token_that_says_something_else_is_not_believed(changed: dict[str, Any]) -> None:
    assert named(ISSUED.token(**changed)) is None


def test_clocks_may_differ_by_the_leeway() -> None:
    late = ISSUED.token(exp=time.time() - 20)
    assert (named(late), named(late, verifier("leeway_secs = 5"))) == ("alice", None)


def test_an_algorithm_that_is_not_configured_is_not_taken() -> None:
    public = ISSUED.keys["rsa"].public_key()
    secret = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    claims = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 60}
    unsealed = unsigned({"alg": "HS256", "kid": "rsa"}, claims).rpartition(".")[0]
    seal = hmac.digest(secret, unsealed.encode(), "sha256")
    by_public_key = f"{unsealed}.{base64.urlsafe_b64encode(seal).rstrip(b'=').decode()}"
    refused = [
        by_public_key,
        unsigned({"alg": "none", "kid": "rsa"}, claims, b""),
        unsigned({"alg": "None", "kid": "rsa"}, claims, b""),
        unsigned({"kid": "rsa"}, claims),
        unsigned({"alg": ["RS256"], "kid": "rsa"}, claims),
        ISSUED.token("rsa", "RS512"),
    ]
    assert [named(each) for each in refused] == [None] * len(refused)


def test_a_signature_of_another_s_key_is_not_taken() -> None:
    other = Issuer()
    token = other.token("rsa", "RS256")
    head, claims, _ = ISSUED.token("rsa", "RS256").split(".")
    assert named(token) is None
    assert named(f"{head}.{claims}.{token.split('.')[2]}") is None
    assert named(unsigned({"alg": "RS256", "kid": "ec"})) is None


def test_keys_for_something_else_are_not_used() -> None:
    token = ISSUED.token()
    assert named(token, verifier(keys=ISSUED.key_set(alg="ES256"))) == "alice"
    assert named(token, verifier(keys=ISSUED.key_set(alg="ES384"))) is None
    with pytest.raises(ConfigError):
        verifier(keys=ISSUED.key_set(use="enc"))


def test_a_short_key_is_not_used() -> None:
    weak = Issuer()
    weak.keys["rsa"] = rsa.generate_private_key(65537, 1024)
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = weak.token("rsa", "RS256")
    assert named(token, verifier(keys=weak.key_set())) is None


def test_a_key_that_is_not_known_is_asked_for() -> None:
    other = Issuer()
    other.keys["new"] = ec.generate_private_key(ec.SECP256R1())
    token = other.token("new")
    by = verifier()
    assert named(token, by) is None
    assert by.wants_keys


def test_new_keys_hold_for_what_was_verified_before() -> None:
    by, token = verifier(), ISSUED.token()
    assert named(token, by) == "alice"
    by.replace_keys(KeySet.parse(Issuer().key_set()))
    assert named(token, by) is None


def test_a_token_is_verified_once_and_not_beyond_its_expiry() -> None:
    clock = Clock()
    by, token = verifier("leeway_secs = 0", clock=clock), ISSUED.token(exp=clock.now + 3)
    first = by.caller(token, key_hash(token))
    assert first is by.caller(token, key_hash(token))
    clock.now += 2
    assert first is by.caller(token, key_hash(token))
    clock.now += 2
    assert first is not by.caller(token, key_hash(token))


@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=40))
def test_what_is_no_token_is_nobody(one: str, two: str, three: str) -> None:
    assert named(f"{one}.{two}.{three}", _ANY) is None


@given(
    st.dictionaries(
        st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk", "x5u"]),
        st.none() | st.booleans() | st.integers() | st.sampled_from(["RS256", "rsa", "none"]),
    )
)
def test_no_header_is_believed_without_a_signature(header: dict[str, Any]) -> None:
    assert named(unsigned(header), _ANY) is None


def test_deep_json_is_no_token() -> None:
    deep = base64.urlsafe_b64encode(b'{"a":' + b"[" * 5000).decode()
    assert named(f"{deep}.{deep}.{deep}", _ANY) is None


_ANY = verifier()


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"[]", b"{}", b'{"keys": {}}', b'{"keys": [1, {"kid": 1}]}', b"[" * 100_000),
        b'{"keys": [{"kid": "k", "kty": "oct", "k": "c2VjcmV0"}]}',
    ],
)
def test_what_is_no_key_set_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match="the key set"):
        KeySet.parse(data)


def test_a_set_of_ten_thousand_keys_is_read_at_once() -> None:
    """Keys are made when they are asked for."""
    (one,) = [each for each in json.loads(ISSUED.key_set())["keys"] if each["kid"] == "ec"]
    many = [{**one, "kid": f"k{n}"} for n in range(10_000)]
    assert named(ISSUED.token(), verifier(keys=json.dumps({"keys": [*many, one]}).encode())) == (
        "alice"
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('algorithms = ["none"]', "'tokens.algorithms' has 'none'"),
        ('algorithms = ["HS256"]', "'tokens.algorithms' has 'HS256'"),
        ("algorithms = []", "'tokens.algorithms' is missing"),
        ('algorithms = "RS256"', "'tokens.algorithms' must be a list"),
        ('issuer = ""', "'tokens.issuer' is missing"),
        ("audience = 1", "'tokens.audience' must be a string"),
        ('key_set = "http://keys.example"', "begins with https:"),
        ('key_set = "file:///etc/keys"', "begins with https:"),
        ('key_set = "https://["', "begins with https:"),
        ('key_set = "https://keys.example:99999/"', "begins with https:"),
        ('key_set = "https:///keys"', "begins with https:"),
        ('key_set = "keys\\u0000.json"', "must be a path"),
        ("leeway_secs = -1", "'tokens.leeway_secs' must be a number from 0"),
        ("retry_secs = 0", "'tokens.retry_secs' must be a number from 1"),
        ("leeway_secs = nan", "'tokens.leeway_secs' must be a number"),
        ('issuers = "x"', "unknown key 'tokens.issuers'; did you mean 'issuer'?"),
    ],
)
def test_wrong_settings_are_named(line: str, problem: str) -> None:
    name = line.partition(" ")[0]
    lines = [
        each for each in with_tokens("keys.json").splitlines() if not each.startswith(f"{name} =")
    ]
    with pytest.raises(ConfigError) as refused:
        parse_policy("\n".join([*lines, line]))
    assert problem in str(refused.value)


def test_without_the_libraries_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(ConfigError, match=r"pip install 'penstock\[auth\]'"):
        verifier()


def test_unknown_keys_do_not_hurry_the_fetches() -> None:
    settings = parse_policy(with_tokens("https://keys.example")).tokens
    assert settings is not None
    plan = FetchPlan(settings)
    assert plan.due(0.0, wanted=False)
    plan.fetched(0.0, failed=False)
    assert [plan.due(now, wanted=True) for now in (9.0, 10.0)] == [False, True]
    assert [plan.due(now, wanted=False) for now in (10.0, 299.0, 300.0)] == [False, False, True]
    plan.fetched(300.0, failed=True)
    assert [plan.due(now, wanted=False) for now in (309.0, 310.0)] == [False, True]
