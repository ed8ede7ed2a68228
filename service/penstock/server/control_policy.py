"""`ControlPolicy`: what clients may change of the running server, and bring to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from penstock.core.errors import UnsupportedError, shortened
from penstock.models.repository.override import FILE
from penstock.settings import Feature, Restriction

_SECRET = "--http-restricted-api, --grpc-restricted-protocol"
_NOT_SECURE = "not where the server was started with --secure"


@dataclass(frozen=True, slots=True)
class ControlPolicy:
    """Whether clients may change the trace settings, and the log settings, which all may read; and
    bring files of models in load requests, which run code here.

    With `by_secret`, those may also who know the secret of the group.
    """

    trace: bool = False
    log: bool = False
    upload: bool = False
    by_secret: bool = True

    def behind(self, restrictions: Iterable[Restriction]) -> ControlPolicy:
        """The policy of a protocol: whoever knows the secret of a group may do what is in it."""
        if not self.by_secret:
            return self
        guarded = {feature for one in restrictions for feature in one.features}
        return replace(
            self,
            trace=self.trace or Feature.TRACE in guarded,
            log=self.log or Feature.LOGGING in guarded,
            upload=self.upload or Feature.MODEL_REPOSITORY in guarded,
        )

    def check_trace(self) -> None:
        """Raise `UnsupportedError` if clients may not change the trace settings."""
        if not self.trace:
            raise self._unchanged("trace", "--allow-trace-control", Feature.TRACE)

    def check_log(self) -> None:
        """Raise `UnsupportedError` if clients may not change the log settings."""
        if not self.log:
            raise self._unchanged("log", "--allow-log-control", Feature.LOGGING)

    def check_files(self, parameters: Iterable[str]) -> None:
        """Raise `UnsupportedError` for files among load parameters, if clients may bring none."""
        if self.upload:
            return
        if file := next((name for name in parameters if name.startswith(FILE)), None):
            ways = (
                "only with --allow-model-upload=true, or where the calls of model-repository are"
                f" restricted ({_SECRET})"
            )
            raise UnsupportedError(
                f"load parameter '{shortened(file)}' is refused: clients may bring files of models"
                f" {ways if self.by_secret else _NOT_SECURE}"
            )

    def _unchanged(self, settings: str, flag: str, group: Feature) -> UnsupportedError:
        ways = (
            f"; {flag}=true allows it, as does a secret for the group '{group.value}' ({_SECRET})"
        )
        return UnsupportedError(
            f"{settings} settings are not changed by requests"
            f"{ways if self.by_secret else f', {_NOT_SECURE}'}"
        )
