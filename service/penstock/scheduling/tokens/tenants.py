"""Tenants: who sends a request, by its headers, and the file with their weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import ConfigError
from penstock.core.nearest_name import suggestion
from penstock.core.request import Sender

FAIRNESS_ID: Final = "x-gateway-inference-fairness-id"
OBJECTIVE: Final = "x-gateway-inference-objective"
ANONYMOUS: Final = "anonymous"
"""The tenant of requests that name none."""

_KEY_HASH: Final = "sha256:"
_LONGEST_NAME: Final = 128
_WEIGHTS: Final = 1e-6, 1e6
"""The least and the greatest weight of a tenant: counters are tokens by weight, and beyond these a
request's would be too small a part of them to count, or end in infinity."""
_GREATEST: Final = 1e15
"""Of other numbers; integers up to it are exact in a float."""
_LONGEST_SHOWN: Final = 40
_MOST_KNOWN_KEYS: Final = 4096


@dataclass(frozen=True, slots=True)
class TenantPolicy:
    """A tenant's share: its `weight`, and `burst` weighted tokens ahead of the share."""

    weight: float = 1.0
    burst: float = 0.0


@dataclass(frozen=True, slots=True)
class FairnessPolicy:
    """The policies of all tenants; `others` is that of tenants without one of their own.

    A token of a prompt and one of an output cost what their weights say. `reserve` is the share of
    the engine's places that is kept free for tenants with fewer than their share; twice as many may
    be, where they are needed.
    """

    tenants: Mapping[str, TenantPolicy] = field(default_factory=dict)
    others: TenantPolicy = field(default_factory=TenantPolicy)
    prompt_weight: float = 1.0
    output_weight: float = 2.0
    reserve: float = 0.125

    def of(self, name: str) -> TenantPolicy:
        return self.tenants.get(name, self.others)

    def reserved(self, capacity: int) -> int:
        """The least places that are kept free; none in an engine that has a single one."""
        if capacity < 2 or not self.reserve:
            return 0
        return max(1, min(round(capacity * self.reserve), capacity // 2))


@dataclass(frozen=True, slots=True)
class Tenants:
    """Names the sender of a request: by API key, else fairness id, else the header `header`.

    A fairness id counts only where it is trusted, since any client can send another's. API keys are
    known by their hashes: `keys` has the tenants of those in the file, any other is a tenant of its
    own, named after the hash. `objectives` are priority bands, the higher first. With an access
    policy, `caller` tells the name of whom it let in, and keys are not looked at here.
    """

    policy: FairnessPolicy = field(default_factory=FairnessPolicy)
    keys: Mapping[str, str] = field(default_factory=dict)
    objectives: Mapping[str, int] = field(default_factory=dict)
    header: str = ""
    trusts_id: bool = False
    caller: Callable[[], str] | None = None
    _names: dict[str, str] = field(default_factory=dict)

    def sender(self, headers: Mapping[str, str]) -> Sender:
        """The tenant and the priority band of a request; names of headers are in lower case."""
        objective = headers.get(OBJECTIVE)
        band = self.objectives.get(objective, 0) if objective else 0
        name = self.proven(headers) or (headers.get(self.header) if self.header else "")
        return Sender((name or ANONYMOUS)[:_LONGEST_NAME], band)

    def proven(self, headers: Mapping[str, str]) -> str:
        """The tenant by what others cannot send: its key, or a trusted id; empty without either."""
        if self.caller is not None:
            if name := self.caller():
                return name[:_LONGEST_NAME]
        elif key := _api_key(headers):
            return self._key_tenant(key)
        name = headers.get(FAIRNESS_ID, "") if self.trusts_id else ""
        return name[:_LONGEST_NAME]

    def _key_tenant(self, key: str) -> str:
        name = self._names.get(key)
        if name is None:
            hashed = sha256(key.encode(errors="replace")).hexdigest()
            name = self.keys.get(hashed) or f"key-{hashed[:12]}"
            if len(self._names) >= _MOST_KNOWN_KEYS:
                self._names.clear()
            self._names[key] = name
        return name


def _api_key(headers: Mapping[str, str]) -> str:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    return headers.get("api-key", "")


# -- the file --------------------------------------------------------------------------------------


def read_tenants(
    path: Path,
    header: str = "",
    *,
    trusts_id: bool = False,
    caller: Callable[[], str] | None = None,
) -> Tenants:
    """Read the file of tenants; raises `ConfigError` that names the file and the field."""
    try:
        given = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_without_repeats)
        return replace(_tenants(given, header.lower(), trusts_id), caller=caller)
    except OSError as error:
        raise ConfigError(f"cannot read tenants from '{path}': {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is one too
        raise ConfigError(f"tenants in '{path}' are not JSON: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"tenants in '{path}': {error}") from error


def _without_repeats(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ConfigError(f"'{next(n for n in names if names.count(n) > 1)}' is given twice")
    return found


def _tenants(given: Any, header: str, trusts_id: bool) -> Tenants:
    top = _object(given, "the file")
    names = ("tenants", "others", "objectives", "prompt_weight", "output_weight", "reserve")
    _refuse_unknown(top, names, "")
    policies: dict[str, TenantPolicy] = {}
    keys: dict[str, str] = {}
    for name, value in _object(top.get("tenants", {}), "'tenants'").items():
        where = f"tenants.{name}"
        if not name or len(name) > _LONGEST_NAME:
            raise ConfigError(f"'{where}': a name must have 1 to {_LONGEST_NAME} characters")
        policies[name] = _policy(value, where, ("weight", "burst", "api_keys"))
        for hashed in _key_hashes(value.get("api_keys", []), f"{where}.api_keys"):
            if hashed in keys:
                raise ConfigError(f"'{where}.api_keys' has a key of tenant '{keys[hashed]}'")
            keys[hashed] = name
    policy = FairnessPolicy(
        policies,
        _policy(top.get("others", {}), "others", ("weight", "burst")),
        _number(top, "prompt_weight", 1.0, ""),
        _number(top, "output_weight", 2.0, ""),
        _number(top, "reserve", 0.125, ""),
    )
    if not policy.prompt_weight + policy.output_weight:
        raise ConfigError("'prompt_weight' and 'output_weight' cannot both be 0")
    if policy.reserve > 0.5:
        raise ConfigError(f"'reserve' must be at most 0.5, got {policy.reserve:g}")
    return Tenants(policy, keys, _objectives(top.get("objectives", {})), header, trusts_id)


def _policy(given: Any, where: str, names: Sequence[str]) -> TenantPolicy:
    values = _object(given, f"'{where}'")
    _refuse_unknown(values, names, f"{where}.")
    weight = _number(values, "weight", 1.0, f"{where}.", *_WEIGHTS)
    return TenantPolicy(weight, _number(values, "burst", 0.0, f"{where}."))


def _objectives(given: Any) -> dict[str, int]:
    bands = _object(given, "'objectives'")
    for name, band in bands.items():
        if type(band) is not int:
            raise ConfigError(f"'objectives.{name}' must be an integer, got {json.dumps(band)}")
    return bands


def _key_hashes(given: Any, where: str) -> list[str]:
    if not isinstance(given, list):
        raise ConfigError(f"'{where}' must be a list of '{_KEY_HASH}' and 64 hexadecimal digits")
    return [_key_hash(text, where) for text in given]


def _key_hash(text: Any, where: str) -> str:
    """The hash of a key; the text is not repeated, since it may be the key itself."""
    hashed = text.removeprefix(_KEY_HASH).lower() if isinstance(text, str) else ""
    if len(hashed) != 64 or set(hashed) - set("0123456789abcdef"):
        raise ConfigError(
            f"'{where}' must hold '{_KEY_HASH}' and 64 hexadecimal digits, as sha256sum prints"
            " them: never a key itself"
        )
    return hashed


def _object(given: Any, what: str) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ConfigError(f"{what} must be a JSON object")
    return given


def _refuse_unknown(given: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    for name in given:
        if name not in known:
            raise ConfigError(f"unknown key '{where}{name}'{suggestion(name, known)}")


def _number(
    given: Mapping[str, Any],
    name: str,
    default: float,
    where: str,
    least: float = 0.0,
    greatest: float = _GREATEST,
) -> float:
    value = given.get(name, default)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not least <= value <= greatest:  # nor is NaN
        allowed = f"a number from {least:g} to {greatest:g}"
        raise ConfigError(f"'{where}{name}' must be {allowed}, got {_shortened(json.dumps(value))}")
    return float(value)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
