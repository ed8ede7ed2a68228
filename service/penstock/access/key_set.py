"""`KeySet`: the public keys of those who sign tokens, and when to fetch them anew."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final

from penstock.access.token_settings import TokenSettings
from penstock.core.errors import ConfigError

_WAIT_SECONDS: Final = 5.0
_FETCH_SECONDS: Final = 10.0
"""For one answer of a socket, and for the whole."""
_MOST_BYTES: Final = 8 << 20


class KeySet:
    """Keys by their ids (`kid`). A key is made when it is first asked for: sets may be large."""

    def __init__(self, keys: Mapping[str, Mapping[str, Any]]) -> None:
        self._keys = keys
        self._made: dict[tuple[str, str], Any] = {}

    @classmethod
    def parse(cls, data: bytes) -> KeySet:
        """The keys of a JSON Web Key Set (RFC 7517) that verify; raises `ConfigError`."""
        try:
            given = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"the key set is not JSON: {error}") from error
        listed = given.get("keys") if isinstance(given, dict) else None
        if not isinstance(listed, list):
            raise ConfigError("the key set has no list 'keys'")
        found = {
            each["kid"]: each
            for each in listed
            if isinstance(each, dict)
            and isinstance(each.get("kid"), str)
            and each.get("use", "sig") == "sig"
            and each.get("kty") in ("RSA", "EC", "OKP")
        }
        if not found:
            raise ConfigError("the key set has no public key with a 'kid' that verifies signatures")
        return cls(found)

    def __contains__(self, kid: str) -> bool:
        return kid in self._keys

    def key(self, kid: str, algorithm: str) -> Any:
        """The key, bound to an algorithm. Raises errors of PyJWT where it does not fit."""
        known = self._made.get((kid, algorithm))
        if known is None:
            import jwt

            given = self._keys[kid]
            if given.get("alg", algorithm) != algorithm:
                raise jwt.InvalidAlgorithmError(f"the key '{kid}' is for another algorithm")
            known = self._made[kid, algorithm] = jwt.PyJWK(dict(given), algorithm)
        return known


NO_KEYS: Final = KeySet({})


class FetchPlan:
    """Decides when keys are fetched: at an interval, sooner for an unknown key, never too often.

    Times are seconds on any clock that does not go back.
    """

    def __init__(self, settings: TokenSettings) -> None:
        self._refresh = settings.refresh_secs
        self._retry = settings.retry_secs
        self._last: float | None = None
        self._failed = False

    def due(self, now: float, *, wanted: bool) -> bool:
        """Whether to fetch now; `wanted` if a token named a key that is not known."""
        if self._last is None:
            return True
        return now - self._last >= (self._retry if wanted or self._failed else self._refresh)

    def fetched(self, now: float, *, failed: bool) -> None:
        """A fetch has ended."""
        self._last, self._failed = now, failed


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An address is what the operator wrote, and none that it leads to."""

    def redirect_request(self, *_: Any) -> None:
        return None


def fetch(address: str) -> KeySet:
    """The keys at an address, within seconds; waits, so call it on a thread.

    Raises `ConfigError`.
    """
    opener = urllib.request.build_opener(_NoRedirect)
    request = urllib.request.Request(address, headers={"accept": "application/json"})
    try:
        with opener.open(request, timeout=_WAIT_SECONDS) as answer:
            return KeySet.parse(_body(answer))
    except (OSError, ValueError, HTTPException) as error:
        raise ConfigError(f"cannot fetch '{address}': {error}") from error
    except ConfigError as error:
        raise ConfigError(f"'{address}': {error}") from error


def _body(answer: Any) -> bytes:
    """The body of an answer, unless it is too large or comes too slowly."""
    end, data = time.monotonic() + _FETCH_SECONDS, bytearray()
    while part := answer.read1(1 << 16):
        data += part
        if len(data) > _MOST_BYTES:
            raise ConfigError(f"it is larger than {_MOST_BYTES} bytes")
        if time.monotonic() > end:
            raise ConfigError(f"it has not come within {_FETCH_SECONDS:g} s")
    return bytes(data)
