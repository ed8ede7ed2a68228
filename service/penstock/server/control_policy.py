"""`ControlPolicy`: which settings of the running server clients may change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.core.errors import UnsupportedError
from penstock.settings import Feature, Restriction


@dataclass(frozen=True, slots=True)
class ControlPolicy:
    """Whether clients may change the trace settings, and the log settings; all may read them."""

    trace: bool = False
    log: bool = False

    def behind(self, restrictions: Iterable[Restriction]) -> ControlPolicy:
        """The policy of a protocol: whoever knows the secret of a group may change its settings."""
        guarded = {feature for one in restrictions for feature in one.features}
        return ControlPolicy(
            self.trace or Feature.TRACE in guarded, self.log or Feature.LOGGING in guarded
        )

    def check_trace(self) -> None:
        """Raise `UnsupportedError` if clients may not change the trace settings."""
        if not self.trace:
            raise _refusal("trace", "--allow-trace-control", Feature.TRACE)

    def check_log(self) -> None:
        """Raise `UnsupportedError` if clients may not change the log settings."""
        if not self.log:
            raise _refusal("log", "--allow-log-control", Feature.LOGGING)


def _refusal(settings: str, flag: str, group: Feature) -> UnsupportedError:
    return UnsupportedError(
        f"{settings} settings are not changed by requests; {flag}=true allows it, as does a secret"
        f" for the group '{group.value}' (--http-restricted-api, --grpc-restricted-protocol)"
    )
