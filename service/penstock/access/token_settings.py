"""`[tokens]` of a policy file: whose JSON Web Tokens are believed, and what they say of callers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.core.errors import ConfigError
from penstock.core.nearest_name import suggestion

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
"""Signatures that a public key verifies. With a shared secret, whoever verifies could sign."""

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSettings:
    """`key_set` is the path of a JSON Web Key Set or its address, which is fetched anew each
    `refresh_secs`, and for unknown keys after `retry_secs` at the earliest. Claims are named by
    themselves, or by dots through what is nested. `prefix` stands before the names of callers.
    """

    key_set: str
    algorithms: tuple[str, ...]
    issuer: str
    audience: str
    name_claim: str = "sub"
    groups_claim: str = "groups"
    prefix: str = ""
    leeway_secs: float = 30.0
    refresh_secs: float = 300.0
    retry_secs: float = 10.0

    @property
    def is_fetched(self) -> bool:
        """Whether the keys come from an address."""
        return "://" in self.key_set


_REQUIRED: Final = ("key_set", "algorithms", "issuer", "audience")
_TEXTS: Final = ("key_set", "issuer", "audience", "name_claim", "groups_claim", "prefix")
_NUMBERS: Final = {"leeway_secs": 0.0, "refresh_secs": 1.0, "retry_secs": 1.0}
"""The least of each."""
_MOST: Final = 86_400.0


def token_settings(given: Mapping[str, Any]) -> TokenSettings:
    """The settings of a table; raises `ConfigError` that names the field."""
    known = [*_TEXTS, "algorithms", *_NUMBERS]
    for name in given:
        if name not in known:
            raise ConfigError(f"unknown key 'tokens.{name}'{suggestion(name, known)}")
    for name in _REQUIRED:
        if not given.get(name):
            raise ConfigError(f"'tokens.{name}' is missing")
    _check_types(given)
    _check_address(given["key_set"])
    return TokenSettings(**{**given, "algorithms": _algorithms(given["algorithms"])})


def _check_types(given: Mapping[str, Any]) -> None:
    for name in _TEXTS:
        if not isinstance(given.get(name, ""), str):
            raise ConfigError(f"'tokens.{name}' must be a string")
    for name, least in _NUMBERS.items():
        value = given.get(name, least)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or not least <= value <= _MOST:
            raise ConfigError(f"'tokens.{name}' must be a number from {least:g} to {_MOST:g}")


def _algorithms(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list):
        raise ConfigError("'tokens.algorithms' must be a list of strings")
    for name in given:
        if name not in ALGORITHMS:
            raise ConfigError(
                f"'tokens.algorithms' has '{name}'; there are: {', '.join(ALGORITHMS)}"
            )
    return tuple(given)


def _check_address(address: str) -> None:
    """The address of a key set, by https: who can change keys on their way can be anybody."""
    if not (_is_safe(address) if "://" in address else address.isprintable()):
        raise ConfigError("'tokens.key_set' must be a path, or an address that begins with https:")


def _is_safe(address: str) -> bool:
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port  # raises for what is no port
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and host in _LOCAL))
