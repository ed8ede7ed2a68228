"""`AccessPolicy`: which calls of which models a caller may make. Knows no file, clock or task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

from penstock.access.globs import Glob, any_fits
from penstock.access.token_settings import TokenSettings
from penstock.settings import Feature

_MOST_REMEMBERED = 1024
"""Names of models for which a permit remembers what it has decided."""

_LONGEST_NAME = 256
"""Characters of the longest of them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Callers by name or by group, or `anyone`, may make `calls` of models that a glob fits."""

    names: Sequence[Glob]
    groups: Sequence[Glob]
    anyone: bool
    calls: frozenset[Feature]
    models: Sequence[Glob]

    def is_for(self, name: str, groups: Sequence[str]) -> bool:
        if self.anyone:
            return True
        if name and any_fits(self.names, name):
            return True
        return any(any_fits(self.groups, group) for group in groups)


class Permit:
    """The models that a caller may see in one group of calls."""

    __slots__ = ("_known", "_models", "caller")

    def __init__(self, caller: str, models: Sequence[Glob]) -> None:
        """`caller` is the name; empty for nobody."""
        self.caller = caller
        self._models = models
        self._known: dict[str, bool] = {}

    def follow(self, other: Permit) -> None:
        """See what another permit of the same caller sees, in the place of what was seen."""
        self._models, self._known = other._models, other._known

    def sees(self, model: str) -> bool:
        """Whether the caller may know of a model and use it."""
        known = self._known.get(model)
        if known is None:
            known = any_fits(self._models, model)
            if len(model) <= _LONGEST_NAME:
                if len(self._known) >= _MOST_REMEMBERED:
                    self._known.clear()
                self._known[model] = known
        return known


class Caller:
    """Somebody known by name, with the groups that it is in, or nobody; and its permits."""

    __slots__ = ("_permits", "_rules", "groups", "name")

    def __init__(self, name: str, groups: Sequence[str], rules: Sequence[Rule]) -> None:
        self.name = name
        self.groups = groups
        self._rules = rules
        self._permits: dict[Feature, Permit | None] = {}

    def permit(self, calls: Feature) -> Permit | None:
        """The permit for a group of calls; `None` where no rule grants it."""
        try:
            return self._permits[calls]
        except KeyError:
            own = [one for one in self._rules if one.is_for(self.name, self.groups)]
            models = [glob for one in own if calls in one.calls for glob in one.models]
            permit = Permit(self.name, models) if models else None
            self._permits[calls] = permit
            return permit


class AccessPolicy:
    """The rules, and the callers that have keys or certificates.

    Keys are known by their SHA-256 as hexadecimal digits, certificates by a name in them.
    """

    def __init__(
        self,
        keys: Mapping[str, str],
        groups: Mapping[str, Sequence[str]],
        rules: Sequence[Rule],
        tokens: TokenSettings | None = None,
        certificates: Mapping[str, str] | None = None,
    ) -> None:
        """`keys` and `certificates` are names by hash and by what is in them, `groups` those of
        each name; `tokens` name further callers.
        """
        self.tokens = tokens
        self._rules = rules
        certificates = certificates or {}
        names = {*keys.values(), *certificates.values()}
        callers = {name: Caller(name, groups.get(name, ()), rules) for name in names}
        self._holders = {hashed: callers[name] for hashed, name in keys.items()}
        self._certified = {shown: callers[name] for shown, name in certificates.items()}
        self.nobody = Caller("", (), rules)

    def holder(self, hashed: str) -> Caller | None:
        """The caller whose key has this hash; its time tells nothing, as nobody chooses a hash."""
        return self._holders.get(hashed)

    def certified(self, names: Sequence[str]) -> Caller | None:
        """The caller that the first known name in a certificate is of."""
        known = self._certified
        for name in names if known else ():
            if (found := known.get(name)) is not None:
                return found
        return None

    def caller(self, name: str, groups: Sequence[str]) -> Caller:
        """A caller that others vouch for."""
        return Caller(name, groups, self._rules)


def key_hash(key: str) -> str:
    """The hash by which a key is known. Keys are random, so that a fast hash will do."""
    return sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
