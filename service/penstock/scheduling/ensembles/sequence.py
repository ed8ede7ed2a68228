"""`SequenceMark`: which sequence a tensor belongs to on its way through an ensemble (E-12)."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.core.errors import InvalidRequestError
from penstock.core.request import Parameters

_NAMES = frozenset(("sequence_id", "sequence_start", "sequence_end"))


@dataclass(frozen=True, slots=True)
class SequenceMark:
    """Correlation id and flags: of the request, or what a step's response says instead."""

    correlation_id: int | str = 0
    start: bool = False
    end: bool = False

    def after(self, said: Parameters) -> SequenceMark:
        """The mark of a response to a request with this mark; a flag that is not said is off."""
        if not said or _NAMES.isdisjoint(said):
            return self
        known = said.get("sequence_id", self.correlation_id)
        if isinstance(known, bool) or not isinstance(known, int | str):
            raise InvalidRequestError(
                "expected parameter 'sequence_id' to be TRITONSERVER_PARAMETER_INT or "
                "TRITONSERVER_PARAMETER_STRING"
            )
        return SequenceMark(known, _flag(said, "sequence_start"), _flag(said, "sequence_end"))

    def parameters(self, *, of_text: bool) -> Parameters:
        """As parameters of the ensemble's response; `of_text` when its request has a text id."""
        known = self.correlation_id
        if isinstance(known, str) is not of_text:
            known = "" if of_text else 0
        if isinstance(known, int) and known >= 1 << 63:
            known -= 1 << 64  # parameters are signed
        return {"sequence_id": known, "sequence_start": self.start, "sequence_end": self.end}


def _flag(said: Parameters, name: str) -> bool:
    value = said.get(name, False)
    if not isinstance(value, bool):
        raise InvalidRequestError(f"expect parameter '{name}' to be TRITONSERVER_PARAMETER_BOOL")
    return value
