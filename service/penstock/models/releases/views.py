"""What people and programs are shown of an alias: plain values, the same for both protocols."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.models.releases.alias import Change
from penstock.models.releases.alias_model import AliasModel
from penstock.models.releases.definition import definition_of
from penstock.models.releases.shadow import Differing, Outcome, ShadowTraffic
from penstock.models.releases.window import LatencySketch

_P50, _P99 = 0.5, 0.99


def shown_alias(model: AliasModel) -> dict[str, Any]:
    """An alias as it is defined, and what becomes of its requests."""
    shown = {"name": model.alias.name} | definition_of(model.alias)
    shown["traffic"] = [*_traffic(model)]
    shown |= _promotion(model)
    if model.shadow is not None:
        shown["shadowed"] = _shadowed(model.shadow)
    return shown


def shown_changes(history: Sequence[Change]) -> list[dict[str, Any]]:
    """The changes of an alias."""
    return [*map(_change, history)]


def _traffic(model: AliasModel) -> Iterator[dict[str, Any]]:
    """What each target answered within the window of the guard, and since it is one."""
    now = time.monotonic()
    for target in model.alias.targets:
        window = model.windows[target.text]
        answers = window.answers(now)
        yield {
            "target": target.text,
            "requests": window.requests,
            "failed": window.failed,
            "window": {
                "seconds": window.seconds,
                "requests": answers.requests,
                "failed": answers.failed,
            }
            | _times(answers.latencies),
        }


def _promotion(model: AliasModel) -> dict[str, Any]:
    promotion = model.promotion
    if promotion is None:
        return {}
    plan = promotion.plan
    return {
        "promotion": {
            "target": plan.target.text,
            "steps": [*plan.steps],
            "every": plan.every,
            "step": promotion.step + 1,
            "due_in": round(promotion.due_in(time.monotonic()), 1),
            "needed": promotion.needed,
        }
    }


def _shadowed(shadow: ShadowTraffic) -> dict[str, Any]:
    counts = shadow.counts
    return {
        **{str(one): counts.outcomes[one] for one in Outcome},
        "first": _times(counts.first),
        "second": _times(counts.second),
        "differing": [*map(_differing, counts.differing)],
    }


def _times(latencies: LatencySketch) -> dict[str, float]:
    """Milliseconds of half of the requests, and of all but a hundredth, at most."""
    return {
        "p50_ms": round(latencies.quantile(_P50) * 1e3, 3),
        "p99_ms": round(latencies.quantile(_P99) * 1e3, 3),
    }


def _differing(one: Differing) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": one.id,
        "at": one.at,
        "target": one.target,
        "difference": one.difference.text,
    }
    if (contents := one.difference.contents) is not None:
        found |= {"first": contents[0], "second": contents[1]}
    return found


def _change(change: Change) -> dict[str, Any]:
    definition = None if change.alias is None else definition_of(change.alias)
    found = {"at": change.at, "why": change.why, "alias": definition}
    return found if change.cause is None else found | {"cause": str(change.cause)}
