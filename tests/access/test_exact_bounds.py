"""The largest and the smallest of everything that a policy and its tokens bound: each of them fits,
and the next does not.
"""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from access.issuer import Issuer, with_tokens
from access.policies import ALICE, gate, hashed
from penstock.access.globs import Glob
from penstock.access.key_set import KeySet
from penstock.access.policy import Permit, key_hash
from penstock.access.policy_file import check_name, parse_policy
from penstock.access.tokens import TokenVerifier
from penstock.core.errors import ConfigError, UnauthenticatedError
from penstock.settings import Feature

ISSUED = Issuer()
RULE = '[[rules]]\ncallers = ["anyone"]\ncalls = ["health"]\n'


class CountedGlob(Glob):
    """Counts how often it is asked."""

    __slots__ = ("asked",)

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.asked = 0

    def fits(self, name: str) -> bool:
        self.asked += 1
        return super().fits(name)


def verifier(more: str = "", clock: Any = time.time) -> TokenVerifier:
    policy = parse_policy(with_tokens("keys.json", more=more))
    assert policy.tokens is not None
    return TokenVerifier(policy.tokens, policy, KeySet.parse(ISSUED.key_set()), clock)


def test_a_pattern_has_256_characters_at_most() -> None:
    assert Glob("a" * 256).fits("a" * 256)
    assert [Glob(text).is_literal for text in ("a", "a*", "*")] == [True, False, False]
    with pytest.raises(ConfigError) as refused:
        Glob("a" * 257)
    assert str(refused.value) == "a pattern must have 1 to 256 characters"


@pytest.mark.parametrize("name", ["", "a" * 129, "a\x00"])
def test_a_name_that_is_none_is_told_the_bounds(name: str) -> None:
    check_name("a" * 128)
    check_name("a")
    with pytest.raises(ConfigError) as refused:
        check_name(name)
    assert str(refused.value) == "a name must have 1 to 128 printable characters"


def test_a_credential_has_8192_characters_at_most() -> None:
    longest = "k" * 8192
    asked = gate(
        f"[callers.a]\nkeys = {hashed(longest, longest + 'k')}\n{RULE}".replace(
            '"health"', '"trace"'
        ).replace('"anyone"', '"a"')
    )
    assert asked.permit({"x-api-key": longest}, Feature.TRACE).caller == "a"
    with pytest.raises(UnauthenticatedError):
        asked.permit({"x-api-key": longest + "k"}, Feature.TRACE)


def test_a_hash_has_64_digits_of_either_case() -> None:
    digits = key_hash(ALICE)
    found = parse_policy(f'{RULE}[callers.a]\nkeys = ["SHA256:{digits}"]'.replace("SHA", "sha"))
    assert found.holder(digits) is not None
    upper = parse_policy(f'{RULE}[callers.a]\nkeys = ["{digits.upper()}"]')
    assert upper.holder(digits) is not None
    for wrong in (digits[:-1], digits + "0", digits[:-1] + "g"):
        with pytest.raises(ConfigError, match=r"'callers\.a\.keys' must hold 'sha256:' and 64"):
            parse_policy(f'{RULE}[callers.a]\nkeys = ["{wrong}"]')


def test_a_permit_remembers_1024_short_names_and_none_that_is_longer_than_256() -> None:
    pattern = CountedGlob("*")
    permit = Permit("a", (pattern,))
    for _ in range(2):
        assert all(permit.sees(f"m{n}") for n in range(1024))
        assert permit.sees("m" * 257)
    assert pattern.asked == 1024 + 2
    assert permit.sees("m" * 256)  # one too many: all are forgotten
    assert permit.sees("m" * 256)
    assert permit.sees("m0")
    assert pattern.asked == 1024 + 2 + 2


@pytest.mark.parametrize(("length", "known"), [(1, True), (256, True), (257, False), (0, False)])
def test_a_token_s_name_has_256_characters_at_most(length: int, known: bool) -> None:
    token = ISSUED.token(sub="s" * length)
    assert (verifier().caller(token, key_hash(token)) is not None) is known


def test_the_first_256_groups_of_a_token_count() -> None:
    token = ISSUED.token(groups=[f"g{n}" for n in range(300)])
    caller = verifier().caller(token, key_hash(token))
    assert caller is not None
    assert caller.groups == [f"g{n}" for n in range(256)]


def test_a_verified_token_is_remembered_for_a_minute() -> None:
    now = [time.time()]
    by, token = verifier(clock=lambda: now[0]), ISSUED.token()
    first = by.caller(token, key_hash(token))
    now[0] += 59.5
    assert by.caller(token, key_hash(token)) is first
    now[0] += 0.5
    again = by.caller(token, key_hash(token))
    assert again is not first
    assert by.caller(token, key_hash(token)) is again


def test_a_token_is_remembered_to_the_end_of_its_leeway() -> None:
    now = [float(int(time.time()))]
    token = ISSUED.token(exp=now[0] + 4)
    by = verifier("leeway_secs = 6", clock=lambda: now[0])
    first = by.caller(token, key_hash(token))
    assert first is not None
    now[0] += 9.5
    assert by.caller(token, key_hash(token)) is first
    now[0] += 0.5
    assert by.caller(token, key_hash(token)) is None


@pytest.mark.slow
def test_ten_thousand_tokens_are_remembered() -> None:
    """One token stands for all of them, as they are known by the hashes given with them."""
    by, token = verifier(), ISSUED.token("rsa", "RS256")
    first = by.caller(token, "0")
    for n in range(1, 10_000):
        by.caller(token, str(n))
    assert by.caller(token, "0") is first
    last = by.caller(token, "one more")
    assert by.caller(token, "one more") is last
    assert by.caller(token, "0") is not first


def test_replaced_keys_end_the_want_of_one() -> None:
    by, stranger = verifier(), Issuer()
    stranger.keys["new"] = stranger.keys["ec"]
    token = stranger.token("new")
    assert by.caller(token, key_hash(token)) is None
    wanted = [by.wants_keys]
    by.replace_keys(KeySet.parse(ISSUED.key_set()))
    wanted.append(by.wants_keys)
    assert by.caller(ISSUED.token(), "known") is not None
    assert [*wanted, by.wants_keys] == [True, False, False]


def test_a_token_without_the_id_of_a_key_wants_none() -> None:
    import jwt

    claims = {"sub": "a", "iss": "i", "aud": "a", "exp": time.time() + 60}
    by = verifier()
    assert by.caller(jwt.encode(claims, ISSUED.keys["ec"], "ES256"), "h") is None
    other = jwt.encode(claims, ISSUED.keys["rsa"], "PS256", {"kid": "unknown"})
    assert by.caller(other, "i") is None  # by an algorithm that is not configured
    assert not by.wants_keys


@pytest.mark.parametrize("name", ["leeway_secs", "refresh_secs", "retry_secs"])
def test_seconds_have_a_least_and_a_most(name: str) -> None:
    least = {"leeway_secs": 0}.get(name, 1)
    for right in (least, 86_400, 7.5):
        tokens = parse_policy(with_tokens("k", more=f"{name} = {right}")).tokens
        assert tokens is not None
        assert getattr(tokens, name) == right
    for wrong in (least - 0.01, 86_400.5, "true", '"5"', "inf"):
        with pytest.raises(ConfigError) as refused:
            parse_policy(with_tokens("k", more=f"{name} = {wrong}"))
        told = f"'tokens.{name}' must be a number from {least} to 86400"
        assert str(refused.value) == told


def test_tokens_have_documented_defaults() -> None:
    tokens = parse_policy(with_tokens("keys.json")).tokens
    assert tokens is not None
    given = (tokens.name_claim, tokens.groups_claim, tokens.prefix)
    assert given == ("sub", "groups", "")
    assert (tokens.leeway_secs, tokens.refresh_secs, tokens.retry_secs) == (30, 300, 10)


@pytest.mark.parametrize(
    "address",
    ["https://k.example/keys", "http://localhost:1/k", "http://127.0.0.1", "http://[::1]"],
)
def test_keys_come_by_https_or_from_this_machine(address: str) -> None:
    tokens = parse_policy(with_tokens(address)).tokens
    assert tokens is not None
    assert tokens.is_fetched
    with pytest.raises(ConfigError, match="must be a path, or an address that begins with https:"):
        parse_policy(with_tokens(address.replace("http", "ftp")))


@pytest.mark.parametrize("name", ["key_set", "algorithms", "issuer", "audience"])
def test_what_tokens_need_is_named(name: str) -> None:
    lines = with_tokens("keys.json").splitlines()
    kept = [line for line in lines if not line.startswith(f"{name} =")]
    with pytest.raises(ConfigError) as refused:
        parse_policy("\n".join(kept))
    assert str(refused.value) == f"'tokens.{name}' is missing"


@pytest.mark.parametrize(
    "name", ["key_set", "issuer", "audience", "name_claim", "groups_claim", "prefix"]
)
def test_what_tokens_have_as_text_is_text(name: str) -> None:
    lines = with_tokens("keys.json").splitlines()
    kept = [line for line in lines if not line.startswith(f"{name} =")]
    with pytest.raises(ConfigError) as refused:
        parse_policy("\n".join([*kept, f"{name} = 1"]))
    assert str(refused.value) == f"'tokens.{name}' must be a string"


def test_keys_that_verify_are_of_three_types_for_signatures() -> None:
    listed = [
        {"kid": "unused", "kty": "RSA", "use": "enc"},
        {"kid": "shared", "kty": "oct"},
        {"kid": 1, "kty": "RSA"},
        {"kty": "RSA"},
        "text",
        *({"kid": kty, "kty": kty} for kty in ("RSA", "EC", "OKP")),
        {"kid": "said", "kty": "EC", "use": "sig"},
    ]
    found = KeySet.parse(json.dumps({"keys": listed}).encode())
    names = ("unused", "shared", "RSA", "EC", "OKP", "said")
    assert [name in found for name in names] == [False, False, True, True, True, True]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"{", "the key set is not JSON: Expecting property name"),
        (b"[]", "the key set has no list 'keys'"),
        (b'{"keys": {"keys": []}}', "the key set has no list 'keys'"),
        (b'{"keys": []}', "the key set has no public key with a 'kid' that verifies signatures"),
    ],
)
def test_a_wrong_key_set_says_what_is_wrong(data: bytes, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        KeySet.parse(data)
    assert str(refused.value).startswith(problem)


def test_a_key_is_made_once_for_each_algorithm() -> None:
    found = KeySet.parse(ISSUED.key_set())
    assert found.key("rsa", "RS256") is found.key("rsa", "RS256")
    assert found.key("rsa", "RS512") is not found.key("rsa", "RS256")
