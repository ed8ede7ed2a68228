"""Definitions of aliases: the plain values of files and requests, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any

from penstock.core.errors import InvalidRequestError
from penstock.core.request import ANY_VERSION
from penstock.models.releases.alias import (
    WHOLE,
    Alias,
    AliasTarget,
    Comparison,
    Guard,
    Shadow,
    Sticky,
)
from penstock.models.releases.promotion import Plan

_FIELDS = {"targets", "sticky", "guard", "shadow"}
_TARGET_FIELDS = {"model", "version", "weight"}
_GUARD_FIELDS = {"min_requests", "max_error_rate", "max_p99_ratio", "window"}
_SHADOW_FIELDS = {"model", "version", "percent", "compare"}
_COMPARE_FIELDS = {"rtol", "atol", "labels", "contents"}
_PLAN_FIELDS = {"target", "steps", "every"}

_LONGEST_NAME = 256
_MOST_TARGETS = 100
_MOST_STEPS = 100
_DAY = 86400.0


def parse_alias(name: str, fields: Any) -> Alias:
    """The alias of a definition; raises `InvalidRequestError` naming what is wrong."""
    try:
        if not name.isprintable() or len(name) > _LONGEST_NAME:
            raise ValueError("its name is too long, or has characters that cannot be shown")
        _check_fields(fields, _FIELDS)
        targets = tuple(map(_target, _listed(fields.get("targets"), "targets")))
        if not targets:
            raise ValueError("it needs targets")
        if len(targets) > _MOST_TARGETS:
            raise ValueError(f"it has more than {_MOST_TARGETS} targets")
        if len({one.text for one in targets}) < len(targets):
            raise ValueError("a target is named twice")
        total = sum(one.weight for one in targets)
        if not isclose(total, WHOLE, abs_tol=1e-6):
            raise ValueError(f"the weights add up to {total:g}, not to {WHOLE:g}")
        sticky, key = _sticky(fields.get("sticky", Sticky.NONE))
        guard = _guard(fields["guard"]) if "guard" in fields else None
        shadow = _shadow(fields["shadow"]) if "shadow" in fields else None
        alias = Alias(name, targets, sticky, key, guard, shadow)
        if name in alias.models:
            raise ValueError("it names itself")
    except (ValueError, TypeError) as error:
        raise InvalidRequestError(f"alias '{name}': {error}") from None
    return alias


def parse_plan(alias: Alias, fields: Any) -> Plan:
    """The plan of a promotion; raises `InvalidRequestError` naming what is wrong.

    Without a target it is that of the last one of the alias, without steps one step to all.
    """
    try:
        _check_fields(fields, _PLAN_FIELDS)
        named = fields.get("target", alias.targets[-1].text)
        if not isinstance(named, str) or (target := alias.target(named)) is None:
            known = ", ".join(f"'{one.text}'" for one in alias.targets)
            raise ValueError(f"the target of a promotion is to be one of {known}")
        steps = _listed(fields.get("steps", [WHOLE]), "steps")
        if not 0 < len(steps) <= _MOST_STEPS:
            raise ValueError(f"1 to {_MOST_STEPS} steps are needed")
        shares = tuple(_number(one, "a step", WHOLE) for one in steps)
        if any(a >= b for a, b in zip((0.0, *shares), shares, strict=False)):
            raise ValueError("steps are shares in percent, each above 0 and the one before")
        every = _number(fields.get("every", 600.0), "every", 30 * _DAY, least=1.0)
    except (ValueError, TypeError) as error:
        raise InvalidRequestError(f"alias '{alias.name}': {error}") from None
    return Plan(target, shares, every)


def definition_of(alias: Alias) -> dict[str, Any]:
    """The definition that `parse_alias` reads."""
    found: dict[str, Any] = {
        "targets": [
            {"model": one.model, "weight": one.weight} | _version(one) for one in alias.targets
        ],
        "sticky": f"{alias.sticky} {alias.key}" if alias.key else str(alias.sticky),
    }
    if (guard := alias.guard) is not None:
        found["guard"] = {
            "min_requests": guard.min_requests,
            "max_error_rate": guard.max_error_rate,
            "window": guard.window,
        }
        if guard.max_p99_ratio:
            found["guard"]["max_p99_ratio"] = guard.max_p99_ratio
    if (shadow := alias.shadow) is not None:
        compare = shadow.compare
        found["shadow"] = {
            "model": shadow.model,
            "percent": shadow.percent,
            "compare": {
                "rtol": compare.rtol,
                "atol": compare.atol,
                "labels": sorted(compare.labels),
                "contents": compare.contents,
            },
        } | _version(shadow)
    return found


def _version(one: AliasTarget | Shadow) -> dict[str, int]:
    return {} if one.version == ANY_VERSION else {"version": one.version}


def _check_fields(fields: Any, known: set[str]) -> None:
    if not isinstance(fields, Mapping):
        raise TypeError("an object is needed")
    if unknown := sorted(map(str, fields.keys() - known)):
        raise ValueError(f"'{unknown[0]}' is none of {', '.join(sorted(known))}")


def _listed(value: Any, what: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{what} is to be a list")
    return value


def _target(fields: Any) -> AliasTarget:
    _check_fields(fields, _TARGET_FIELDS)
    model, version = _model(fields, "a target")
    weight = fields.get("weight", WHOLE)
    return AliasTarget(model, version, _number(weight, f"the weight of '{model}'", WHOLE))


def _model(fields: Mapping[str, Any], what: str) -> tuple[str, int]:
    model, version = fields.get("model"), fields.get("version", ANY_VERSION)
    if not isinstance(model, str) or not model or not model.isprintable():
        raise TypeError(f"{what} needs the name of a model")
    if isinstance(version, bool) or not isinstance(version, int):
        raise TypeError(f"the version of '{model}' is to be a number")
    if version != ANY_VERSION and not 0 <= version < 1 << 63:
        raise ValueError(f"the version of '{model}' is to be 0 or more")
    return model, version


def _sticky(text: Any) -> tuple[Sticky, str]:
    kind, _, key = str(text).partition(" ")
    known = kind in list(Sticky) and key.isprintable()
    if not known or bool(key) is not Sticky(kind).named:
        raise ValueError("sticky is to be none, sequence, 'parameter NAME' or 'header NAME'")
    sticky = Sticky(kind)
    return sticky, key.lower() if sticky is Sticky.HEADER else key


def _guard(fields: Any) -> Guard:
    _check_fields(fields, _GUARD_FIELDS)
    requests = _number(fields.get("min_requests", 100), "min_requests", 1e12)
    rate = _number(fields.get("max_error_rate", 0.01), "max_error_rate", 1.0)
    # Aliases are looked at once a second.
    window = _number(fields.get("window", 60.0), "window", _DAY, least=2.0)
    ratio = _number(fields.get("max_p99_ratio", 0.0), "max_p99_ratio", 1e6)
    if 0 < ratio < 1:
        raise ValueError("max_p99_ratio is to be 1 or more")
    return Guard(int(requests), rate, window, ratio)


def _shadow(fields: Any) -> Shadow:
    _check_fields(fields, _SHADOW_FIELDS)
    model, version = _model(fields, "a shadow")
    percent = _number(fields.get("percent", WHOLE), "the percent of a shadow", WHOLE)
    return Shadow(model, version, percent, _comparison(fields.get("compare", {})))


def _comparison(fields: Any) -> Comparison:
    _check_fields(fields, _COMPARE_FIELDS)
    labels = _listed(fields.get("labels", []), "labels")
    if not all(isinstance(one, str) and one.isprintable() for one in labels):
        raise TypeError("labels are names of outputs")
    contents = fields.get("contents", False)
    if not isinstance(contents, bool):
        raise TypeError("contents is to be true or false")
    return Comparison(
        _number(fields.get("rtol", 1e-5), "rtol", 1e9),
        _number(fields.get("atol", 1e-8), "atol", 1e300),
        frozenset(labels),
        contents,
    )


def _number(value: Any, what: str, most: float, least: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{what} is to be a number from {least:g} to {most:g}")
    return float(value)
