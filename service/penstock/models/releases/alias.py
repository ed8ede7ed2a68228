"""`Alias`: a name, the models behind it, which of them a request goes to: no state, no clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b
from math import isclose
from typing import Any

from penstock.core.errors import InvalidRequestError
from penstock.core.request import ANY_VERSION, InferenceRequest

_WHOLE = 100.0
"""What the weights of an alias add up to."""

_FIELDS = {"targets", "sticky", "guard"}
_TARGET_FIELDS = {"model", "version", "weight"}
_GUARD_FIELDS = {"min_requests", "max_error_rate", "window"}


class Sticky(StrEnum):
    """What keeps requests together on one target."""

    NONE = "none"
    SEQUENCE = "sequence"
    PARAMETER = "parameter"


@dataclass(frozen=True, slots=True)
class AliasTarget:
    """A model, or one of its versions, and its share of the requests in percent."""

    model: str
    version: int
    weight: float

    @property
    def text(self) -> str:
        """The model's name, with the version if one is named."""
        return self.model if self.version == ANY_VERSION else f"{self.model}:{self.version}"


@dataclass(frozen=True, slots=True)
class Guard:
    """When an alias goes back: after `min_requests` in the last `window` seconds, of which more
    than `max_error_rate` (0 to 1) have failed.
    """

    min_requests: int
    max_error_rate: float
    window: float


@dataclass(frozen=True, slots=True)
class Alias:
    """A name with targets, whose weights add up to 100; the first one is the one to go back to.

    Where it is sticky by a parameter, `key` names that.
    """

    name: str
    targets: tuple[AliasTarget, ...]
    sticky: Sticky = Sticky.NONE
    key: str = ""
    guard: Guard | None = None

    @classmethod
    def parse(cls, name: str, fields: Mapping[str, Any]) -> Alias:
        """The alias of a definition; raises `InvalidRequestError` naming what is wrong."""
        try:
            _check_fields(fields, _FIELDS)
            targets = tuple(map(_target, _listed(fields.get("targets"))))
            if not targets:
                raise ValueError("it needs targets")
            if len({(one.model, one.version) for one in targets}) < len(targets):
                raise ValueError("a target is named twice")
            if any(one.model == name for one in targets):
                raise ValueError("it names itself")
            total = sum(one.weight for one in targets)
            if not isclose(total, _WHOLE, abs_tol=1e-6):
                raise ValueError(f"the weights add up to {total:g}, not to {_WHOLE:g}")
            sticky, key = _sticky(fields.get("sticky", Sticky.NONE))
            guard = _guard(fields["guard"]) if "guard" in fields else None
        except (ValueError, TypeError) as error:
            raise InvalidRequestError(f"alias '{name}': {error}") from None
        return cls(name, targets, sticky, key, guard)

    @property
    def shares(self) -> str:
        """Its targets and their weights, for people."""
        return ", ".join(f"'{one.text}' {one.weight:g} %" for one in self.targets)

    def definition(self) -> dict[str, Any]:
        """The definition that `parse` reads."""
        targets = [
            {"model": one.model, "weight": one.weight}
            | ({} if one.version == ANY_VERSION else {"version": one.version})
            for one in self.targets
        ]
        found: dict[str, Any] = {
            "targets": targets,
            "sticky": f"{self.sticky} {self.key}" if self.key else str(self.sticky),
        }
        if self.guard is not None:
            found["guard"] = {
                "min_requests": self.guard.min_requests,
                "max_error_rate": self.guard.max_error_rate,
                "window": self.guard.window,
            }
        return found

    def drawn(
        self, number: float, serves: Callable[[AliasTarget], bool] = lambda target: True
    ) -> AliasTarget | None:
        """The target at `number`, 0 to 1, of those that serve; `None` if none with weight does.

        The share of targets that do not serve goes to the others.
        """
        usable = [one for one in self.targets if one.weight > 0 and serves(one)]
        place = number * sum(one.weight for one in usable)
        for one in usable:
            place -= one.weight
            if place < 0:
                return one
        return usable[-1] if usable else None

    def place(self, request: InferenceRequest) -> float | None:
        """Where a request that is sticky is drawn, the same for all of its kind, 0 to 1."""
        if self.sticky is Sticky.SEQUENCE:
            value: object = request.correlation_id or None
        elif self.sticky is Sticky.PARAMETER:
            value = request.parameters.get(self.key)
        else:
            return None
        if value is None:
            return None
        text = f"{self.name}\0{value}".encode()
        return int.from_bytes(blake2b(text, digest_size=7).digest()) / (1 << 56)

    def back(self) -> Alias:
        """The alias with all requests on its first target."""
        first, *others = self.targets
        rest = (replace(one, weight=0.0) for one in others)
        return replace(self, targets=(replace(first, weight=_WHOLE), *rest))


def _check_fields(fields: Mapping[str, Any], known: set[str]) -> None:
    if not isinstance(fields, Mapping):
        raise TypeError("an object is needed")
    if unknown := sorted(fields.keys() - known):
        raise ValueError(f"'{unknown[0]}' is none of {', '.join(sorted(known))}")


def _listed(value: Any) -> Sequence[Any]:
    if value is None or not isinstance(value, list):
        raise TypeError("targets is to be a list")
    return value


def _target(fields: Mapping[str, Any]) -> AliasTarget:
    _check_fields(fields, _TARGET_FIELDS)
    model, version = fields.get("model"), fields.get("version", ANY_VERSION)
    weight = fields.get("weight", _WHOLE)
    if not isinstance(model, str) or not model:
        raise TypeError("a target needs the name of a model")
    if isinstance(version, bool) or not isinstance(version, int):
        raise TypeError(f"the version of '{model}' is to be a number")
    if version != ANY_VERSION and not 0 <= version < 1 << 63:
        raise ValueError(f"the version of '{model}' is to be 0 or more")
    return AliasTarget(model, version, _number(weight, f"the weight of '{model}'", _WHOLE))


def _sticky(text: Any) -> tuple[Sticky, str]:
    kind, _, key = str(text).partition(" ")
    if kind not in list(Sticky) or bool(key) is not (kind == Sticky.PARAMETER):
        raise ValueError("sticky is to be none, sequence or 'parameter NAME'")
    return Sticky(kind), key


def _guard(fields: Mapping[str, Any]) -> Guard:
    _check_fields(fields, _GUARD_FIELDS)
    requests = _number(fields.get("min_requests", 100), "min_requests", 1e12)
    rate = _number(fields.get("max_error_rate", 0.01), "max_error_rate", 1.0)
    # Requests are counted once a second: less than two may hold one count, and no difference.
    window = _number(fields.get("window", 60.0), "window", 86400.0, least=2.0)
    return Guard(int(requests), rate, window)


def _number(value: Any, what: str, most: float, least: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{what} is to be a number from {least:g} to {most:g}")
    return float(value)
