"""`Alias`: a name, the models behind it, which of them a request goes to: no state, no clock."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b

from penstock.core.request import ANY_VERSION, InferenceRequest

WHOLE = 100.0
"""What the weights of an alias add up to."""


class Sticky(StrEnum):
    """What keeps requests together on one target."""

    NONE = "none"
    SEQUENCE = "sequence"
    PARAMETER = "parameter"
    HEADER = "header"

    @property
    def named(self) -> bool:
        """Whether it goes by something that has a name."""
        return self in (Sticky.PARAMETER, Sticky.HEADER)


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
    than `max_error_rate` (0 to 1) have failed, or whose 99th percentile of latencies is more than
    `max_p99_ratio` times that of the first target; 0 for no such limit.
    """

    min_requests: int
    max_error_rate: float
    window: float
    max_p99_ratio: float = 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """How answers of two models are compared.

    Numbers are equal within `atol + rtol * |number|`. Of the outputs in `labels` only the places of
    the largest numbers are compared. `contents`: what differs is kept, and shown.
    """

    rtol: float = 1e-5
    atol: float = 1e-8
    labels: frozenset[str] = frozenset()
    contents: bool = False


@dataclass(frozen=True, slots=True)
class Shadow:
    """A model, or one of its versions, that gets copies of `percent` of the requests."""

    model: str
    version: int
    percent: float
    compare: Comparison = Comparison()

    @property
    def text(self) -> str:
        """The model's name, with the version if one is named."""
        return AliasTarget(self.model, self.version, 0.0).text


@dataclass(frozen=True, slots=True)
class Alias:
    """A name with targets, whose weights add up to 100; the first one is the one to go back to.

    Where it is sticky by a parameter or a header, `key` names that.
    """

    name: str
    targets: tuple[AliasTarget, ...]
    sticky: Sticky = Sticky.NONE
    key: str = ""
    guard: Guard | None = None
    shadow: Shadow | None = None

    @property
    def shares(self) -> str:
        """Its targets and their weights, for people."""
        return ", ".join(f"'{one.text}' {one.weight:g} %" for one in self.targets)

    @property
    def models(self) -> Set[str]:
        """The names of all models that it sends requests to."""
        named = {one.model for one in self.targets}
        return named if self.shadow is None else named | {self.shadow.model}

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
        """Where a request that is sticky is drawn, the same for all of its kind, 0 to 1.

        `None` for one that has nothing of what the alias is sticky by.
        """
        if self.sticky is Sticky.SEQUENCE:
            value: object = request.correlation_id or None
        elif self.sticky is Sticky.PARAMETER:
            value = request.parameters.get(self.key)
        elif self.sticky is Sticky.HEADER:
            headers = request.scope.headers
            value = None if headers is None else headers.get(self.key)
        else:
            return None
        if value is None:
            return None
        text = f"{self.name}\0{value}".encode("utf-8", "surrogateescape")
        return int.from_bytes(blake2b(text, digest_size=7).digest()) / (1 << 56)

    def back(self) -> Alias:
        """The alias with all requests on its first target."""
        return self.with_share(self.targets[0], WHOLE)

    def with_share(self, target: AliasTarget, share: float) -> Alias:
        """The alias where this target has `share` percent; the others keep their proportions.

        What is left goes to the first of the others where these have nothing.
        """
        others = [one for one in self.targets if one.text != target.text]
        had = sum(one.weight for one in others)
        left = WHOLE - share

        def weight(one: AliasTarget) -> float:
            if one.text == target.text:
                return share if others else WHOLE
            if had > 0:
                return one.weight * left / had
            return left if one is others[0] else 0.0

        return replace(
            self, targets=tuple(replace(one, weight=weight(one)) for one in self.targets)
        )

    def target(self, text: str) -> AliasTarget | None:
        """The target that is named so, with its version if it has one."""
        return next((one for one in self.targets if one.text == text), None)


class Cause(StrEnum):
    """Why an alias went back to its first target."""

    ERRORS = "error_rate"
    LATENCY = "latency"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class Change:
    """A change of an alias: seconds since the epoch, what it is now, and why.

    `cause` is set where it went back.
    """

    at: float
    alias: Alias | None
    why: str
    cause: Cause | None = None
