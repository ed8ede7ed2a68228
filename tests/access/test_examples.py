"""The example policies are taken, and let those do what their comments say."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.access.policy import AccessPolicy, Caller
from penstock.access.policy_file import read_policy
from penstock.settings import Feature

FOLDER = Path(__file__).parents[2] / "examples" / "access"


def example(name: str) -> AccessPolicy:
    return read_policy(FOLDER / f"{name}.toml")


def may(caller: Caller | None, calls: str, model: str) -> bool:
    assert caller is not None
    permit = caller.permit(Feature(calls))
    return permit is not None and permit.sees(model)


def test_every_example_is_named_and_checked_here() -> None:
    names = {file.name for file in FOLDER.glob("*.toml")}
    assert names == {"team.toml", "tokens.toml", "mesh.toml"}
    readme = (FOLDER / "README.md").read_text()
    assert all(f"]({name})" in readme for name in names)


@pytest.mark.parametrize("name", ["team", "tokens", "mesh"])
def test_anyone_may_ask_for_health_and_nothing_else(name: str) -> None:
    nobody = example(name).nobody
    assert [each.value for each in Feature if nobody.permit(each)] == ["health"]


def test_a_team_with_keys() -> None:
    policy = example("team")
    ana, _, shop, operator, prometheus = [policy.holder(f"{n:064x}") for n in range(1, 6)]
    assert may(ana, "inference", "any")
    assert not may(ana, "model-repository", "any")
    assert may(shop, "inference", "recommender")
    assert not may(shop, "inference", "any")
    assert may(operator, "model-repository", "any")
    assert may(prometheus, "metrics", "any")
    assert not may(prometheus, "inference", "any")


def test_people_with_tokens() -> None:
    policy = example("tokens")
    assert policy.tokens is not None
    user = policy.caller("user:eve", ["llm-users"])
    assert may(user, "inference", "llm-7b")
    assert not may(user, "inference", "fraud")
    assert may(policy.caller("user:kim", ["llm-admins"]), "model-repository", "fraud")
    assert may(policy.holder(f"{6:064x}"), "inference", "embed-small")
    assert not may(policy.caller("user:batch", []), "inference", "embed-small")


def test_services_with_certificates() -> None:
    policy = example("mesh")
    gateway = policy.certified(["URI:spiffe://cluster.local/ns/edge/sa/gateway"])
    assert may(gateway, "inference", "any")
    assert not may(gateway, "shared-memory", "any")
    assert may(policy.certified(["DNS:ranker.search.internal"]), "shared-memory", "any")
    assert policy.certified(["URI:spiffe://cluster.local/ns/edge/sa/other"]) is None
