"""The file of tenants: what fits exactly, and the whole text for what does not."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ConfigError
from penstock.scheduling.tokens.tenants import (
    FairnessPolicy,
    TenantPolicy,
    Tenants,
    read_tenants,
)

HASH = "sha256:" + "ab" * 32


def read(tmp_path: Path, given: Any, **options: Any) -> Tenants:
    file = tmp_path / "tenants.json"
    file.write_text(given if isinstance(given, str) else json.dumps(given))
    return read_tenants(file, **options)


def refusal(tmp_path: Path, given: Any) -> str:
    with pytest.raises(ConfigError) as refused:
        read(tmp_path, given)
    start = f"tenants in '{tmp_path / 'tenants.json'}'"
    assert refused.value.message.startswith(start)
    return refused.value.message.removeprefix(start)


def test_without_anything_all_is_as_documented(tmp_path: Path) -> None:
    found = read(tmp_path, {}, header="X-Tenant", trusts_id=True)
    assert found.policy == FairnessPolicy({}, TenantPolicy(1.0, 0.0), 1.0, 2.0, 0.125)
    assert (found.header, found.trusts_id, found.caller) == ("x-tenant", True, None)


def test_bounds_fit_exactly(tmp_path: Path) -> None:
    longest = "t" * 128
    found = read(
        tmp_path,
        {
            "tenants": {
                longest: {"weight": 1e-6, "burst": 1e15, "api_keys": [HASH, "CD" * 32]},
                "b": {"weight": 1e6},
            },
            "others": {"weight": 3, "burst": 4},
            "objectives": {"low": -1},
            "prompt_weight": 0,
            "output_weight": 5,
            "reserve": 0.5,
        },
    )
    assert found.policy == FairnessPolicy(
        {longest: TenantPolicy(1e-6, 1e15), "b": TenantPolicy(1e6, 0.0)},
        TenantPolicy(3.0, 4.0),
        *(0.0, 5.0),
        0.5,
    )
    assert found.keys == {"ab" * 32: longest, "cd" * 32: longest}
    assert found.objectives == {"low": -1}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("{", " are not JSON: Expecting property name"),
        ("\\udcff", " are not JSON: "),
        ("[]", ": the file must be a JSON object"),
        ('{"reserve": 0, "reserve": 1}', ": 'reserve' is given twice"),
        ({"tenant": {}}, ": unknown key 'tenant'; did you mean 'tenants'?"),
        ({"tenants": []}, ": 'tenants' must be a JSON object"),
        ({"tenants": {"": {}}}, ": 'tenants.': a name must have 1 to 128 characters"),
        (
            {"tenants": {"t" * 129: {}}},
            f": 'tenants.{'t' * 129}': a name must have 1 to 128 characters",
        ),
        ({"tenants": {"a": 1}}, ": 'tenants.a' must be a JSON object"),
        (
            {"tenants": {"a": {"wieght": 1}}},
            ": unknown key 'tenants.a.wieght'; did you mean 'weight'?",
        ),
        ({"others": {"api_keys": []}}, ": unknown key 'others.api_keys'"),
        (
            {"tenants": {"a": {"weight": 9e-7}}},
            ": 'tenants.a.weight' must be a number from 1e-06 to 1e+06, got 9e-07",
        ),
        ({"others": {"weight": 1e6 + 1}}, ": 'others.weight' must be a number from 1e-06 to 1e+06"),
        ({"others": {"burst": -1}}, ": 'others.burst' must be a number from 0 to 1e+15, got -1"),
        ({"reserve": True}, ": 'reserve' must be a number from 0 to 1e+15, got true"),
        (
            {"reserve": "x" * 50},
            f": 'reserve' must be a number from 0 to 1e+15, got \"{'x' * 39}...",
        ),
        (
            {"reserve": "x" * 38},
            f": 'reserve' must be a number from 0 to 1e+15, got \"{'x' * 38}\"",
        ),
        ({"reserve": 0.51}, ": 'reserve' must be at most 0.5, got 0.51"),
        (
            {"prompt_weight": 0, "output_weight": 0},
            ": 'prompt_weight' and 'output_weight' cannot both be 0",
        ),
        ({"objectives": {"a": 1.0}}, ": 'objectives.a' must be an integer, got 1.0"),
        ({"objectives": {"a": True}}, ": 'objectives.a' must be an integer, got true"),
        (
            {"tenants": {"a": {"api_keys": HASH}}},
            ": 'tenants.a.api_keys' must be a list of 'sha256:' and 64 hexadecimal digits",
        ),
        (
            {"tenants": {"a": {"api_keys": [HASH[:-1]]}}},
            ": 'tenants.a.api_keys' must hold 'sha256:' and 64 hexadecimal digits, as sha256sum"
            " prints them: never a key itself",
        ),
        (
            {"tenants": {"a": {"api_keys": [HASH]}, "b": {"api_keys": [HASH]}}},
            ": 'tenants.b.api_keys' has a key of tenant 'a'",
        ),
    ],
)
def test_what_is_wrong_is_named_with_the_file(tmp_path: Path, given: Any, problem: str) -> None:
    assert refusal(tmp_path, given).startswith(problem)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        read_tenants(tmp_path / "none")
    assert refused.value.message == (
        f"cannot read tenants from '{tmp_path / 'none'}': No such file or directory"
    )


def test_names_of_senders_are_cut_and_keys_are_known_by_twelve_digits(tmp_path: Path) -> None:
    found = read(tmp_path, {}, header="x-tenant", trusts_id=True)
    identity = "x-gateway-inference-fairness-id"
    long = "n" * 200
    assert found.sender({"x-tenant": long}).tenant == "n" * 128
    assert found.sender({identity: long}).tenant == "n" * 128
    hashed = sha256(b"secret").hexdigest()
    for headers in (
        {"authorization": "Bearer secret"},
        {"authorization": "bearer  secret "},
        {"api-key": "secret"},
    ):
        assert found.sender({**headers, identity: "other"}).tenant == f"key-{hashed[:12]}"
    assert found.sender({"authorization": "Basic secret"}).tenant == "anonymous"
    assert found.sender({}) == ("anonymous", 0, "")
    told = Tenants(caller=lambda: "c" * 200)
    assert told.proven({"api-key": "secret"}) == "c" * 128


def test_many_keys_are_not_all_remembered() -> None:
    tenants = Tenants()
    names = [tenants.proven({"api-key": str(n)}) for n in range(4097)]
    assert len({*names}) == 4097
    assert len(tenants._names) == 1


@pytest.mark.parametrize(
    ("capacity", "reserve", "kept"),
    [
        (0, 0.125, 0),
        (1, 0.125, 0),
        (2, 0.125, 1),
        (8, 0.125, 1),
        (16, 0.125, 2),
        (8, 0.5, 4),
        (3, 0.5, 1),
        (8, 0, 0),
    ],
)
def test_places_that_are_kept_free(capacity: int, reserve: float, kept: int) -> None:
    assert FairnessPolicy(reserve=reserve).reserved(capacity) == kept
