"""`CallGuard`: what a call needs beside its path: a secret header, and no foreign page."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from penstock.core.errors import shortened
from penstock.gateway.connections.http_call import HttpCall
from penstock.settings import Feature, Restriction, restriction_of

_READING = ("GET", "HEAD", "OPTIONS")


class CallGuard:
    """Decides for the calls of one group whether they may be made.

    Browsers let any web page send requests anywhere, and name the page in `Origin`. A call that may
    change the server is therefore refused to pages of other origins: but for those of `origins`,
    and of this server itself. `None` admits every page.
    """

    def __init__(self, restriction: Restriction | None, origins: Collection[str] | None) -> None:
        self._restriction = restriction
        self._origins = origins

    def refusal(self, call: HttpCall) -> str | None:
        """Why a call may not be made; `None` if it may."""
        needed = self._restriction
        if needed is not None and not needed.admits(call.headers.get(needed.key.lower())):
            return f"This API is restricted, expecting header '{needed.key}'"
        if self._origins is None or call.method in _READING:
            return None
        origin = call.headers.get("origin")
        if origin is None or origin in self._origins or _is_own(origin, call):
            return None
        return (
            f"web pages of '{shortened(origin)}' may not change this server;"
            " --openai-allow-origin names those that may"
        )


def guards(
    restrictions: Sequence[Restriction], origins: Collection[str]
) -> dict[Feature, CallGuard]:
    """The guards by group of calls; inference without a restriction needs none.

    Every other group is taken for one that changes the server by all methods but those that read.
    """
    found: dict[Feature, CallGuard] = {}
    for feature in Feature:
        restriction = restriction_of(feature, restrictions)
        if feature is not Feature.INFERENCE:
            found[feature] = CallGuard(restriction, origins)
        elif restriction is not None:
            found[feature] = CallGuard(restriction, None)
    return found


def _is_own(origin: str, call: HttpCall) -> bool:
    """Whether a page comes from this server, by the name that the browser knows it by."""
    host = call.headers.get("host")
    return bool(host) and origin in (f"http://{host}", f"https://{host}")
