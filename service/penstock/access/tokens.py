"""`TokenVerifier`: JSON Web Tokens as callers, verified once and remembered until they expire."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Final

from penstock.access.key_set import KeySet
from penstock.access.policy import AccessPolicy, Caller
from penstock.access.token_settings import TokenSettings
from penstock.core.errors import ConfigError

_REMEMBERED_SECONDS: Final = 60.0
_MOST_REMEMBERED: Final = 10_000
_LONGEST_NAME: Final = 256
_MOST_GROUPS: Final = 256
_OF_PYTHON: Final = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError)


class TokenVerifier:
    """Verifies tokens by a set of keys, which may be replaced; `wants_keys` where one is missing.

    Only the algorithms of the settings are taken, whatever a token says, and only the key that it
    names; expiry, audience and issuer are demanded.
    """

    def __init__(
        self,
        settings: TokenSettings,
        policy: AccessPolicy,
        keys: KeySet,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` tells seconds since the epoch. Raises `ConfigError` without PyJWT."""
        self._settings = settings
        self._policy = policy
        self.keys = keys
        self.clock = clock
        self._known: dict[str, tuple[Caller, float]] = {}
        self._jwt = _pyjwt()
        self.wants_keys = False

    def replace_keys(self, keys: KeySet) -> None:
        """Verify by other keys from now on, also what was verified before."""
        self.keys = keys
        self._known.clear()
        self.wants_keys = False

    def caller(self, token: str, hashed: str) -> Caller | None:
        """The caller of a token, by its hash if it is known; `None` if it is not to be believed."""
        known = self._known.get(hashed)
        if known is not None:
            caller, until = known
            if self.clock() < until:
                return caller
            del self._known[hashed]
        return self._verified(token, hashed)

    def until(self, hashed: str) -> float:
        """How long a token is believed without another look, by the clock; 0 if it is not."""
        known = self._known.get(hashed)
        return 0.0 if known is None else known[1]

    def _verified(self, token: str, hashed: str) -> Caller | None:
        try:
            claims = self._claims(token)
        # The library raises errors of Python's own where parts of a token are of other types, or,
        # in some of its releases, where their JSON is nested deeply.
        except (self._jwt.PyJWTError, *_OF_PYTHON):
            return None
        if claims is None or (caller := self._named(claims)) is None:
            return None
        now = self.clock()
        until = min(float(claims["exp"]) + self._settings.leeway_secs, now + _REMEMBERED_SECONDS)
        if until <= now:
            return None
        if len(self._known) >= _MOST_REMEMBERED:
            self._known.clear()
        self._known[hashed] = caller, until
        return caller

    def _claims(self, token: str) -> Mapping[str, Any] | None:
        """The claims of a verified token; `None` if it names a key that is not known."""
        settings = self._settings
        header = self._jwt.get_unverified_header(token)
        kid, algorithm = header.get("kid"), header.get("alg")
        if not isinstance(kid, str) or algorithm not in settings.algorithms:
            return None
        if kid not in self.keys:
            self.wants_keys = True
            return None
        claims: Mapping[str, Any] = self._jwt.decode(
            token,
            self.keys.key(kid, algorithm),
            algorithms=[algorithm],
            audience=settings.audience,
            issuer=settings.issuer,
            leeway=settings.leeway_secs,
            options={"require": ["exp", "aud", "iss"], "enforce_minimum_key_length": True},
        )
        return claims if math.isfinite(float(claims["exp"])) else None

    def _named(self, claims: Mapping[str, Any]) -> Caller | None:
        name = claim(claims, self._settings.name_claim)
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME:
            return None
        if not name.isprintable():  # as that of a caller in a file
            return None
        groups = claim(claims, self._settings.groups_claim)
        if isinstance(groups, str):
            groups = groups.split()  # as scopes are written
        found = [one for one in groups if isinstance(one, str)] if isinstance(groups, list) else []
        return self._policy.caller(f"{self._settings.prefix}{name}", found[:_MOST_GROUPS])


def claim(claims: Mapping[str, Any], path: str) -> Any:
    """A claim by its name, or by dots through what is nested; `None` if there is none."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _pyjwt() -> ModuleType:
    try:
        import cryptography  # noqa: F401
        import jwt
    except ImportError as error:
        raise ConfigError("tokens need PyJWT: pip install 'penstock[auth]'") from error
    return jwt
