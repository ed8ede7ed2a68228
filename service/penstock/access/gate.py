"""`AccessGate`: the door at which every frontend asks before it reads the body of a call."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.access.policy import AccessPolicy, Caller, Permit, key_hash
from penstock.access.tokens import TokenVerifier
from penstock.core.errors import PermissionDeniedError, UnauthenticatedError
from penstock.settings import Feature

CREDENTIAL_HEADERS = ("authorization", "x-api-key", "api-key")
"""The headers, or metadata, that hold a key or a token."""

_LONGEST_CREDENTIAL = 8 << 10
"""Characters; what is longer is no key, and is not hashed."""

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

    def permit(self, headers: Mapping[str, str], calls: Feature) -> Permit:
        """The permit of a call in this group; names of headers are in lower case.

        Raises `UnauthenticatedError` for callers that are not known, and `PermissionDeniedError`
        for those that are. Wrong credentials are none: what anyone may do, their senders may.
        """
        caller = self._caller(headers)
        permit = caller.permit(calls)
        if permit is not None:
            return permit
        if caller.name:
            raise PermissionDeniedError(_FORBIDDEN)
        raise UnauthenticatedError(_UNKNOWN)

    def admits(self, headers: Mapping[str, str], calls: Feature) -> bool:
        """Whether there is a permit for such a call."""
        return self._caller(headers).permit(calls) is not None

    def _caller(self, headers: Mapping[str, str]) -> Caller:
        policy = self.policy
        sent = _credential(headers)
        if not sent or len(sent) > _LONGEST_CREDENTIAL:
            return policy.nobody
        hashed = key_hash(sent)
        if (holder := policy.holder(hashed)) is not None:
            return holder
        tokens = self.tokens
        if tokens is not None and sent.count(".") == 2:
            return tokens.caller(sent, hashed) or policy.nobody
        return policy.nobody


def _credential(headers: Mapping[str, str]) -> str:
    """The key or token that a call brings; empty without one."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and (token := token.strip()):
        return token
    return headers.get("x-api-key") or headers.get("api-key") or ""
