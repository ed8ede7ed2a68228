"""Who may make a call: by its secret, the page that it comes from, and the policy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.access.current import NO_PERMIT
from penstock.access.gate import AccessGate
from penstock.access.globs import Glob
from penstock.access.policy import AccessPolicy, Permit, Rule, key_hash
from penstock.core.errors import InferenceError, PermissionDeniedError, UnauthenticatedError
from penstock.gateway.call_guard import CallGuard, PolicyGuard, call_guard, guards, may_see
from penstock.settings import Feature, Restriction

SECRET = Restriction(frozenset({Feature.TRACE, Feature.STATISTICS}), "X-Key", "secret")
GATE = AccessGate(
    AccessPolicy(
        {key_hash("key"): "a"},
        {},
        [Rule((Glob("a"),), (), False, frozenset({Feature.TRACE}), (Glob("m"),))],
    )
)


def call(method: str = "POST", **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    fields = [(name.encode(), value.encode()) for name, value in named.items()]
    of_host = {"certificate": (), "audit": None, "path": "/", "fields": fields}
    return SimpleNamespace(method=method, headers=named, permit=None, **of_host)


def told(error: InferenceError | None) -> str:
    return "" if error is None else error.message


def test_a_secret_is_asked_for_by_its_name() -> None:
    guard = CallGuard(Feature.TRACE, SECRET, ())
    assert told(guard.refusal(call(x_key="secret"))) == ""
    for wrong in (call(), call(x_key="other"), call("GET")):
        text = "This API is restricted, expecting header 'X-Key'"
        assert told(guard.refusal(wrong)) == text


@pytest.mark.parametrize(
    ("origin", "host", "is_let_in"),
    [
        ("https://page", "", True),
        ("https://other", "", False),
        ("https://other", "other", True),
        ("http://other:8000", "other:8000", True),
        ("ftp://other", "other", False),
        ("https://", "", False),
        ("null", "null", False),
    ],
)
def test_pages_of_other_origins_change_nothing(origin: str, host: str, is_let_in: bool) -> None:
    headers = {"origin": origin, **({"host": host} if host else {})}
    refused = CallGuard(Feature.TRACE, None, ("https://page",)).refusal(call(**headers))
    assert (refused is None) is is_let_in
    if refused is not None:
        assert refused.message == (
            f"web pages of '{origin}' may not change this server; --openai-allow-origin names"
            " those that may"
        )
    for method in ("GET", "HEAD", "OPTIONS"):
        assert CallGuard(Feature.TRACE, None, ()).refusal(call(method, **headers)) is None
    assert CallGuard(Feature.TRACE, None, None).refusal(call(**headers)) is None
    assert CallGuard(Feature.TRACE, None, ()).refusal(call()) is None


def test_a_policy_is_asked_first_and_its_permit_is_the_call_s() -> None:
    guard = PolicyGuard(GATE, Feature.TRACE, SECRET, ())
    both = call(x_api_key="key", x_key="secret")
    assert guard.refusal(both) is None
    assert (both.permit.caller, may_see(both, "m"), may_see(both, "n")) == ("a", True, False)
    assert isinstance(guard.refusal(call(x_key="secret")), UnauthenticatedError)
    assert isinstance(guard.refusal(call(x_api_key="key")), PermissionDeniedError)
    asking = call("OPTIONS", x_key="secret")
    assert guard.refusal(asking) is None
    assert asking.permit is NO_PERMIT
    assert may_see(call(), "anything")


def test_every_group_has_a_guard_but_inference_that_anyone_may_ask() -> None:
    found = guards((SECRET,), ("https://page",))
    assert set(found) == {*Feature} - {Feature.INFERENCE}
    page = call(origin="https://other")
    assert isinstance(found[Feature.HEALTH].refusal(page), PermissionDeniedError)
    assert told(found[Feature.TRACE].refusal(call())).startswith("This API is restricted")
    assert found[Feature.HEALTH].refusal(call()) is None
    restricted = Restriction(frozenset({Feature.INFERENCE}), "k", "v")
    inference = guards((restricted,), ())[Feature.INFERENCE]
    assert told(inference.refusal(page)).startswith("This API is restricted")
    assert inference.refusal(call(k="v", origin="https://other")) is None


def test_with_a_policy_the_metrics_of_the_port_need_the_secret_of_statistics() -> None:
    found = guards((SECRET,), (), GATE)
    assert all(isinstance(each, PolicyGuard) for each in found.values())
    assert set(found) == {*Feature}
    permit = Permit("a", (Glob("*"),))
    open_gate: Any = SimpleNamespace(permit=lambda *_: permit)
    metrics = guards((SECRET,), (), cast(AccessGate, open_gate))[Feature.METRICS]
    assert told(metrics.refusal(call("GET"))).startswith("This API is restricted")
    assert metrics.refusal(call("GET", x_key="secret")) is None
    own = Restriction(frozenset({Feature.METRICS}), "own", "v")
    metrics = guards((own, SECRET), (), cast(AccessGate, open_gate))[Feature.METRICS]
    assert metrics.refusal(call("GET", own="v")) is None


def test_one_group_has_its_own_restriction() -> None:
    assert type(call_guard(Feature.HEALTH, (SECRET,), (), None)) is CallGuard
    assert type(call_guard(Feature.HEALTH, (SECRET,), (), GATE)) is PolicyGuard
    assert call_guard(Feature.HEALTH, (SECRET,), (), None).refusal(call()) is None
    assert call_guard(Feature.TRACE, (SECRET,), (), None).refusal(call()) is not None
