"""What clients may change, and bring, behind the restrictions of their protocol."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.core.errors import UnsupportedError
from penstock.server.control_policy import ControlPolicy
from penstock.settings import Feature, Restriction

_GROUPS = frozenset({Feature.TRACE, Feature.LOGGING, Feature.MODEL_REPOSITORY})
_SECRETS = (Restriction(_GROUPS, "key", "secret"),)

_CHECKS: dict[str, Callable[[ControlPolicy], None]] = {
    "trace": ControlPolicy.check_trace,
    "log": ControlPolicy.check_log,
    "upload": lambda policy: policy.check_files(["config", "file:1/model.py"]),
}


@pytest.mark.parametrize("name", _CHECKS)
def test_restrictions_let_who_knows_the_secret(name: str) -> None:
    policy = ControlPolicy()
    assert getattr(policy.behind(_SECRETS), name)
    _CHECKS[name](policy.behind(_SECRETS))
    with pytest.raises(UnsupportedError, match="--http-restricted-api"):
        _CHECKS[name](policy.behind(()))


@pytest.mark.parametrize("name", _CHECKS)
def test_a_secure_server_lets_nobody(name: str) -> None:
    policy = ControlPolicy(by_secret=False).behind(_SECRETS)
    with pytest.raises(UnsupportedError, match="not where the server was started with --secure"):
        _CHECKS[name](policy)


def test_other_load_parameters_are_no_files() -> None:
    policy = ControlPolicy(by_secret=False)
    policy.check_files(["config", "priority"])
    assert not policy.upload
