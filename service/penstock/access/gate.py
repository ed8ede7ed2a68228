"""`AccessGate`: the door at which every frontend asks before it reads the body of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from penstock.access.key_set import KeySet
from penstock.access.policy import AccessPolicy, Caller, Permit, key_hash
from penstock.access.tokens import TokenVerifier
from penstock.core.errors import PermissionDeniedError, UnauthenticatedError
from penstock.settings import Feature

_LONGEST_CREDENTIAL = 8 << 10
"""Characters; what is longer is no key, and is not hashed."""

_MOST_REMEMBERED = 1024
"""Headers whose callers are remembered, of each kind."""

_UNKNOWN = "this call needs a valid key or token"
_FORBIDDEN = "the caller may not make this call"


class AccessGate:
    """Knows callers by what they send, and permits calls by the policy that is in force.

    `policy` is replaced as a whole, with the `tokens` that it believes, when its file changes;
    `reload_failures` counts files and sets of keys that were wrong, and left the old ones in force.
    """

    def __init__(self, policy: AccessPolicy, tokens: TokenVerifier | None = None) -> None:
        self.policy = policy
        self.tokens = tokens
        self.reload_failures = 0
        self._bearers = _Remembered()
        self._keys = _Remembered()

    def permit(
        self, headers: Mapping[str, str], calls: Feature, certificate: Sequence[str] = ()
    ) -> Permit:
        """The permit of a call in this group; names of headers are in lower case.

        `certificate` has the names in that of the client, which TLS has verified. Raises
        `UnauthenticatedError` for callers that are not known, and `PermissionDeniedError` for those
        that are. Wrong credentials are none: what anyone may do, their senders may.
        """
        caller = self._caller(headers, certificate)
        permit = caller.permit(calls)
        if permit is not None:
            return permit
        if caller.name:
            raise PermissionDeniedError(_FORBIDDEN)
        raise UnauthenticatedError(_UNKNOWN)

    def caller(self, headers: Mapping[str, str], certificate: Sequence[str] = ()) -> str:
        """The name of whoever calls; empty for nobody."""
        return self._caller(headers, certificate).name

    def _caller(self, headers: Mapping[str, str], certificate: Sequence[str]) -> Caller:
        """By a key, a token or, where there is no such that is right, the certificate."""
        policy, tokens = self.policy, self.tokens
        known: Caller | None = None
        key: str | None = None
        if (sent := headers.get("authorization")) is not None:
            known = self._bearers.find(sent, policy, tokens)
            if known is None and (key := _bearer(sent)) is not None:
                known = self._looked_up(key, sent, self._bearers)
        if known is None and key is None:
            sent = headers.get("x-api-key") or headers.get("api-key")
            if sent:
                known = self._keys.find(sent, policy, tokens)
                if known is None:
                    known = self._looked_up(sent, sent, self._keys)
        return known or policy.certified(certificate) or policy.nobody

    def _looked_up(self, key: str, sent: str, remembered: _Remembered) -> Caller | None:
        """The caller that a key or token names; `None` if it is wrong."""
        if len(key) > _LONGEST_CREDENTIAL:
            return None
        tokens, hashed = self.tokens, key_hash(key)
        known, until = self.policy.holder(hashed), inf
        if known is None and tokens is not None and key.count(".") == 2:
            known, until = tokens.caller(key, hashed), tokens.until(hashed)
        if known is not None:
            remembered.keep(sent, known, until)
        return known


class _Remembered:
    """Callers by the header that they have sent, so that each call costs a look-up and no hash.

    It is forgotten when what vouches for them is replaced.
    """

    def __init__(self) -> None:
        self._callers: dict[str, tuple[Caller, float]] = {}
        self._policy: AccessPolicy | None = None
        self._keys: KeySet | None = None

    def find(self, sent: str, policy: AccessPolicy, tokens: TokenVerifier | None) -> Caller | None:
        keys = None if tokens is None else tokens.keys
        if policy is not self._policy or keys is not self._keys:
            self._callers.clear()
            self._policy, self._keys = policy, keys
        known = self._callers.get(sent)
        if known is None:
            return None
        caller, until = known
        if until != inf and (tokens is None or tokens.clock() >= until):
            del self._callers[sent]
            return None
        return caller

    def keep(self, sent: str, caller: Caller, until: float) -> None:
        if len(self._callers) >= _MOST_REMEMBERED:
            self._callers.clear()
        self._callers[sent] = caller, until


def _bearer(sent: str) -> str | None:
    """The key or token of the header `authorization`; `None` for what is of another scheme."""
    scheme, _, key = sent.strip().partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None
