"""Who sends a request, and the file of tenants."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from penstock.core.errors import ConfigError
from penstock.core.request import Sender
from penstock.scheduling.tokens.tenants import Tenants, read_tenants

_ID = "x-gateway-inference-fairness-id"
_HASH = sha256(b"secret").hexdigest()


def _read(folder: Path, given: Any) -> Tenants:
    path = folder / "tenants.json"
    path.write_text(given if isinstance(given, str) else json.dumps(given))
    return read_tenants(path, "X-Team")


@pytest.mark.parametrize(
    ("headers", "tenant"),
    [
        ({_ID: "a", "api-key": "secret"}, "search"),
        ({_ID: "a", "x-team": "blue"}, "blue"),
        ({_ID: "a"}, "anonymous"),
        ({"authorization": "Bearer secret", "x-team": "blue"}, "search"),
        ({"api-key": "secret"}, "search"),
        ({"api-key": "other"}, f"key-{sha256(b'other').hexdigest()[:12]}"),
        ({"authorization": "Basic secret", "x-team": "blue"}, "blue"),
        ({}, "anonymous"),
    ],
)
def test_sender_is_named_by_key_then_header_where_no_id_is_trusted(
    tmp_path: Path, headers: dict[str, str], tenant: str
) -> None:
    tenants = _read(tmp_path, {"tenants": {"search": {"api_keys": [f"sha256:{_HASH}"]}}})
    assert tenants.sender(headers) == Sender(tenant, 0)


@pytest.mark.parametrize(
    ("headers", "tenant"),
    [
        ({_ID: "a", "x-team": "blue"}, "a"),
        ({_ID: "a", "api-key": "secret"}, "search"),
        ({"x-team": "blue"}, "blue"),
    ],
)
def test_trusted_id_counts_behind_a_key(
    tmp_path: Path, headers: dict[str, str], tenant: str
) -> None:
    file = {"tenants": {"search": {"api_keys": [f"sha256:{_HASH}"]}}}
    tenants = replace(_read(tmp_path, file), trusts_id=True)
    assert tenants.sender(headers).tenant == tenant


def test_a_header_of_the_servers_own_proves_nothing(tmp_path: Path) -> None:
    tenants = _read(tmp_path, {})
    assert tenants.proven({"x-team": "blue", _ID: "a"}) == ""
    assert tenants.proven({"x-team": "blue", "api-key": "other"}).startswith("key-")


def test_objective_is_a_band_and_an_unknown_one_is_the_middle(tmp_path: Path) -> None:
    tenants = _read(tmp_path, {"objectives": {"batch": -10}})
    bands = [tenants.sender({"x-gateway-inference-objective": o}).band for o in ("batch", "what")]
    assert bands == [-10, 0]


def test_file_has_weights_and_bursts(tmp_path: Path) -> None:
    tenants = _read(
        tmp_path, {"tenants": {"a": {"weight": 3, "burst": 9}}, "others": {"weight": 2}}
    )
    policy = tenants.policy
    assert (policy.of("a").weight, policy.of("a").burst, policy.of("b").weight) == (3, 9, 2)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"tenants": {"a": {"weight": -1}}},
            "'tenants.a.weight' must be a number from 1e-06 to 1e+06, got -1",
        ),
        (
            {"tenants": {"a": {"weight": 0}}},
            "'tenants.a.weight' must be a number from 1e-06 to 1e+06, got 0",
        ),
        (
            {"others": {"weight": 1e-320}},
            "'others.weight' must be a number from 1e-06 to 1e+06, got 1e-320",
        ),
        (
            {"others": {"weight": 1e9}},
            "'others.weight' must be a number from 1e-06 to 1e+06, got 1000000000.0",
        ),
        (
            {"others": {"burst": 10**400}},
            "'others.burst' must be a number from 0 to 1e+15, got 1000",
        ),
        ({"tenants": {"a": {"wieght": 1}}}, "unknown key 'tenants.a.wieght'; did you mean"),
        ({"tenant": {}}, "unknown key 'tenant'; did you mean 'tenants'"),
        ({"tenants": []}, "'tenants' must be a JSON object"),
        ({"objectives": {"a": "high"}}, "'objectives.a' must be an integer"),
        ({"reserve": 0.9}, "'reserve' must be at most 0.5"),
        ({"prompt_weight": 0, "output_weight": 0}, "cannot both be 0"),
        ('{"reserve": NaN}', "'reserve' must be a number"),
        ('{"tenants": {"a": {}, "a": {}}}', "'a' is given twice"),
        ("weights: 1", "are not JSON"),
    ],
)
def test_wrong_file_is_refused_by_file_and_field(tmp_path: Path, given: Any, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        _read(tmp_path, given)
    assert text in refused.value.message
    assert "tenants.json" in refused.value.message


def test_key_in_the_file_is_not_repeated(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="never a key itself") as refused:
        _read(tmp_path, {"tenants": {"a": {"api_keys": ["secret"]}}})
    assert "secret" not in refused.value.message


def test_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read tenants from"):
        read_tenants(tmp_path / "nowhere.json")
