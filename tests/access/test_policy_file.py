"""Files of access policies: what they say, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from access.policies import ADMIN, ALICE, BOB, POLICY, hashed
from penstock.access.policy import key_hash
from penstock.access.policy_file import parse_policy, read_policy
from penstock.core.errors import ConfigError
from penstock.settings import Feature

RULE = '[[rules]]\ncallers = ["anyone"]\ncalls = ["health"]\n'


def test_a_key_is_its_callers() -> None:
    policy = parse_policy(POLICY)
    holders = [policy.holder(key_hash(key)) for key in (ALICE, BOB, ADMIN, "other", "")]
    assert [one and one.name for one in holders] == ["alice", "bob", "admin", None, None]


def test_rules_grant_calls_and_models() -> None:
    alice = parse_policy(POLICY).holder(key_hash(ALICE))
    assert alice is not None
    permit = alice.permit(Feature.INFERENCE)
    assert permit is not None
    assert (permit.sees("open-model"), permit.sees("secret")) == (True, False)
    assert alice.permit(Feature.TRACE) is None


def test_rules_of_one_caller_add_up() -> None:
    more = '[[rules]]\ncallers = ["ali*"]\ncalls = ["inference"]\nmodels = ["secret"]\n'
    alice = parse_policy(POLICY + more).holder(key_hash(ALICE))
    assert alice is not None
    permit = alice.permit(Feature.INFERENCE)
    assert permit is not None
    assert (permit.sees("open"), permit.sees("secret"), permit.sees("x")) == (True, True, False)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it has no 'rules'"),
        ("[callers.a]\n", "it has no 'rules'"),
        ("rules = [", "it is not TOML"),
        (f"rules = {'1' * 5000}", "it is not TOML"),
        ("rule = 1", "unknown key 'rule'; did you mean 'rules'?"),
        ("rules = [1]", "'rules[0]' must be a table"),
        ("[[rules]]\ncalls = ['health']", "'rules[0].callers' must name who the rule is for"),
        ("[[rules]]\ncallers = ['anyone']", "'rules[0].calls' must name groups of calls"),
        (
            "[[rules]]\ncallers = ['anyone']\ncalls = ['inferense']",
            "'inferense', which is no group of calls; did you mean 'inference'?",
        ),
        (f"{RULE}model = ['a']", "unknown key 'rules[0].model'; did you mean 'models'?"),
        (f"{RULE}models = []", "'rules[0].models' is empty"),
        (f"{RULE}models = ['a?']", "'rules[0].models': 'a?': the only wildcard is '*'"),
        (f"{RULE}models = 'a'", "'rules[0].models' must be a list of strings"),
        (
            "[callers.alice]\n[[rules]]\ncallers = ['alise']\ncalls = ['*']",
            "'alise', which no caller of the file is called; did you mean 'alice'?",
        ),
        (
            "[callers.alice]\n[[rules]]\ncallers = ['group:x*']\ncalls = ['*']",
            "'x*', which no group of the file is called",
        ),
        (f"{RULE}[callers.anyone]", "'anyone' is no name"),
        (f"{RULE}[callers.'a*']", "'a*' is no name"),
        (f"{RULE}[callers.'group:a']", "'group:a' is no name"),
        (f"{RULE}[callers.a]\nkeys = {hashed('1', '2', '3')}", "'callers.a.keys' has 3 keys"),
        (
            f"{RULE}[callers.a]\nkeys = {hashed('1')}\n[callers.b]\nkeys = {hashed('1')}",
            "'callers.b.keys' has a key of 'a'",
        ),
        (f"{RULE}[callers.a]\nkeyz = []", "unknown key 'callers.a.keyz'; did you mean 'keys'?"),
    ],
)
def test_what_is_wrong_is_named(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_policy(text)
    assert problem in str(refused.value)


def test_a_key_that_stands_for_its_hash_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_policy(f"{RULE}[callers.a]\nkeys = ['the-key-itself']")
    assert "never a key itself" in str(refused.value)
    assert "the-key-itself" not in str(refused.value)


@pytest.mark.parametrize("data", [None, b"\xff", b""])
def test_errors_name_the_file(tmp_path: Path, data: bytes | None) -> None:
    file = tmp_path / "policy.toml"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(ConfigError, match=r"policy\.toml"):
        read_policy(file)


@pytest.mark.slow
def test_ten_thousand_keys_are_looked_up_by_hash() -> None:
    lines = [
        f'[callers.c{n}]\nkeys = {hashed(f"key-{n}")}\ngroups = ["all"]' for n in range(10_000)
    ]
    rule = '[[rules]]\ncallers = ["group:all"]\ncalls = ["inference"]'
    policy = parse_policy("\n".join([*lines, rule]))
    last = policy.holder(key_hash("key-9999"))
    assert last is not None
    assert last.name == "c9999"
    assert last.permit(Feature.INFERENCE) is not None
