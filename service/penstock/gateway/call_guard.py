"""`CallGuard`: what a call needs beside its path: a permit, a secret header, no foreign page."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from penstock.access.current import NO_PERMIT
from penstock.access.gate import AccessGate
from penstock.core.access import Access, AuditSink, event_of_call
from penstock.core.errors import InferenceError, PermissionDeniedError, shortened
from penstock.gateway.connections.http_call import HttpCall
from penstock.settings import Feature, Restriction, restriction_of

_READING = ("GET", "HEAD", "OPTIONS")


class CallGuard:
    """Decides for the calls of one group whether they may be made.

    Browsers let any web page send requests anywhere, and name the page in `Origin`. A call that may
    change the server is therefore refused to pages of other origins: but for those of `origins`,
    and of this server itself. `None` admits every page. The audit log is told of refusals, and of
    what changes the server.
    """

    def __init__(
        self, feature: Feature, restriction: Restriction | None, origins: Collection[str] | None
    ) -> None:
        self._changes = feature.changes
        self._restriction = restriction
        self._origins = origins

    def refusal(self, call: HttpCall) -> InferenceError | None:
        """Why a call may not be made; `None` if it may."""
        return self._told(call, self._refusal(call))

    def _told(self, call: HttpCall, refusal: InferenceError | None) -> InferenceError | None:
        """The same refusal, or none, of which the audit log is to be told."""
        if refusal is not None or (self._changes and _is_change(call)):
            audit = call.audit
            if audit is not None:
                call.on_end = partial(_tell, audit, self._caller(call))
        return refusal

    def _caller(self, call: HttpCall) -> str:
        """The name of the caller; empty for nobody."""
        return ""

    def _refusal(self, call: HttpCall) -> InferenceError | None:
        needed = self._restriction
        if needed is not None and not has_secret(call, needed):
            return PermissionDeniedError(f"This API is restricted, expecting header '{needed.key}'")
        if self._origins is None or call.method in _READING:
            return None
        origin = call.headers.get("origin")
        if origin is None or origin in self._origins or _is_own(origin, call):
            return None
        return PermissionDeniedError(
            f"web pages of '{shortened(origin)}' may not change this server;"
            " --openai-allow-origin names those that may"
        )


class PolicyGuard(CallGuard):
    """Asks the access policy before all else, and notes the permit of the caller at the call.

    Browsers ask without credentials, by OPTIONS, what they may send; no route does more for it.
    """

    def __init__(
        self,
        gate: AccessGate,
        feature: Feature,
        restriction: Restriction | None,
        origins: Collection[str] | None,
    ) -> None:
        super().__init__(feature, restriction, origins)
        self._gate = gate
        self._feature = feature
        self._asks_only = restriction is None and origins is None and not self._changes

    def refusal(self, call: HttpCall) -> InferenceError | None:
        try:
            call.permit = self._gate.permit(call.headers, self._feature, call.certificate)
        except InferenceError as error:
            if call.method != "OPTIONS":
                return self._told(call, error)
            call.permit = NO_PERMIT
        return None if self._asks_only else super().refusal(call)

    def _caller(self, call: HttpCall) -> str:
        return self._gate.caller(call.headers, call.certificate)


def _is_change(call: HttpCall) -> bool:
    """Whether a call of a group that changes the server may do so: an index is asked by POST."""
    return call.method not in _READING and not call.path.endswith("/index")


def _tell(audit: AuditSink, caller: str, access: Access) -> None:
    audit.add(event_of_call(access, caller))


def call_guard(
    feature: Feature,
    restrictions: Sequence[Restriction],
    origins: Collection[str] | None,
    gate: AccessGate | None,
) -> CallGuard:
    """The guard of a group of calls."""
    restriction = restriction_of(feature, restrictions)
    if gate is not None:
        return PolicyGuard(gate, feature, restriction, origins)
    return CallGuard(feature, restriction, origins)


def guards(
    restrictions: Sequence[Restriction], origins: Collection[str], gate: AccessGate | None = None
) -> dict[Feature, CallGuard]:
    """The guards by group of calls; inference without a restriction and a policy needs none.

    Every other group is taken for one that changes the server by all methods but those that read.
    """
    found: dict[Feature, CallGuard] = {}
    for feature in Feature:
        if feature is Feature.METRICS and gate is not None:
            # The page on a port of this API, which secrets hold to be statistics.
            kept = restriction_of(feature, restrictions)
            kept = kept or restriction_of(Feature.STATISTICS, restrictions)
            found[feature] = PolicyGuard(gate, feature, kept, origins)
        elif feature is not Feature.INFERENCE:
            found[feature] = call_guard(feature, restrictions, origins, gate)
        elif gate is not None or restriction_of(feature, restrictions) is not None:
            found[feature] = call_guard(feature, restrictions, None, gate)
    return found


def has_secret(call: HttpCall, needed: Restriction) -> bool:
    """Whether a call has the header that a restriction asks for, and has it once.

    Of two, a proxy before the server may have read the other.
    """
    name = needed.key.lower()
    if not needed.admits(call.headers.get(name)):
        return False
    return [field.lower() for field, _ in call.fields].count(name.encode()) == 1


def may_see(call: HttpCall, model: str) -> bool:
    """Whether the caller of a call may know of a model; everybody where no policy was asked."""
    return call.permit is None or call.permit.sees(model)


def _is_own(origin: str, call: HttpCall) -> bool:
    """Whether a page comes from this server, by the name that the browser knows it by."""
    host = call.headers.get("host")
    return bool(host) and origin in (f"http://{host}", f"https://{host}")
