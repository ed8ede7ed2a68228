"""The door: who is let in by what it sends."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from access.policies import ADMIN, ALICE, BOB, SECOND, bearer, gate
from penstock.core.errors import InferenceError, PermissionDeniedError, UnauthenticatedError
from penstock.settings import Feature


@pytest.mark.parametrize(
    "headers",
    [
        bearer(ALICE),
        bearer(SECOND),
        {"authorization": f"bearer  {ALICE} "},
        {"x-api-key": ALICE},
        {"api-key": ALICE},
        {"authorization": "Basic eA==", "x-api-key": ALICE},
    ],
)
def test_a_key_is_known_in_each_header(headers: dict[str, str]) -> None:
    assert gate().permit(headers, Feature.INFERENCE).caller == "alice"


@pytest.mark.parametrize(
    ("headers", "caller"),
    [
        ({**bearer(BOB), "x-api-key": ADMIN}, "bob"),
        ({"x-api-key": BOB, "api-key": ADMIN}, "bob"),
        ({**bearer("no"), "x-api-key": ADMIN}, ""),
        ({"x-api-key": "no", "api-key": ADMIN}, ""),
    ],
)
def test_of_several_keys_one_counts(headers: dict[str, str], caller: str) -> None:
    """Also when its caller is remembered, and the other keys' callers are."""
    asked = gate()
    for name, key in headers.items():
        asked.caller({name: key})
    assert [asked.caller(headers), asked.caller(headers)] == [caller, caller]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("wrong"),
        bearer(""),
        {"authorization": ALICE},
        {"x-api-key": ALICE + "x"},
        {"x-api-key": "\udcff"},
        bearer("k" * (1 << 20)),
    ],
)
def test_strangers_are_told_one_thing(headers: dict[str, str]) -> None:
    with pytest.raises(UnauthenticatedError) as refused:
        gate().permit(headers, Feature.INFERENCE)
    assert refused.value.message == "this call needs a valid key or token"


def test_who_is_known_and_may_not_is_told_so() -> None:
    with pytest.raises(PermissionDeniedError):
        gate().permit(bearer(BOB), Feature.INFERENCE)


def test_what_anyone_may_do_needs_no_valid_key() -> None:
    asked = gate()
    for headers in ({}, bearer("wrong"), bearer(BOB)):
        assert asked.permit(headers, Feature.HEALTH).sees("open")


def _outcome(key: str, calls: Feature) -> type[InferenceError] | None:
    try:
        gate().permit(bearer(key), calls)
    except InferenceError as error:
        return type(error)
    return None


@pytest.mark.parametrize("calls", list(Feature))
def test_who_may_do_everything_may_make_each_group_of_calls(calls: Feature) -> None:
    assert _outcome(ADMIN, calls) is None


@pytest.mark.parametrize("headers", [bearer(ALICE), {"x-api-key": ALICE}])
def test_a_key_is_hashed_once(monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]) -> None:
    asked, hashed = gate(), []

    def counting(text: bytes) -> Any:
        hashed.append(text)
        return sha256(text)

    monkeypatch.setattr("penstock.access.policy.sha256", counting)
    assert [asked.caller(headers) for _ in range(3)] == ["alice"] * 3
    assert hashed == [ALICE.encode()]
