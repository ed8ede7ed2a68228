"""The command `penstock release`."""

from __future__ import annotations

import json
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from penstock_client.client import Client
from penstock_client.commands import RELEASE
from penstock_client.commands.connection import client_parser
from penstock_client.commands.output import print_json, print_table
from penstock_client.commands.running import run_command
from penstock_client.commands.values import assignment

_VERBS = ("show", "set", "promote", "rollback", "history", "remove")
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_HEAD = ["TARGET", "WEIGHT %", "REQUESTS", "FAILED", "WINDOW", "FAILED", "P50 ms", "P99 ms"]
_SHOWN = 5
"""Requests that differ, of which people are shown the last."""
_EPILOG = """
show [ALIAS]: all aliases, or one.
set ALIAS MODEL[:VERSION]=PERCENT ... [--sticky ...] [--guard ...] [--shadow ...]: make or change
one; the first model is the one to go back to.
promote ALIAS [MODEL[:VERSION]] --steps 1,5,25,100 --every 10m: give the last model, or this one,
more and more.
rollback ALIAS: give the first model all requests.
history ALIAS: what changed, and why.
remove ALIAS.
"""


def parser() -> ArgumentParser:
    """The parser of the command line."""
    made = client_parser("release", RELEASE.summary, _EPILOG)
    made.add_argument("verb", metavar="VERB", choices=_VERBS, help=", ".join(_VERBS))
    made.add_argument("alias", metavar="ALIAS", nargs="?", default="")
    made.add_argument("targets", metavar="TARGET", nargs="*", default=[])
    group = made.add_argument_group("set")
    group.add_argument(
        "--file", metavar="FILE", help="the whole definition as JSON, in place of what follows"
    )
    group.add_argument(
        "--sticky", metavar="BY", help="none, sequence, 'parameter NAME' or 'header NAME'"
    )
    group.add_argument(
        "--guard",
        metavar="NAME=NUMBER",
        action="append",
        default=[],
        type=_number,
        help="min_requests, max_error_rate, max_p99_ratio, window; may be given several times",
    )
    group.add_argument(
        "--shadow", metavar="MODEL[:VERSION][=PERCENT]", help="a model that gets copies"
    )
    group.add_argument(
        "--compare",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=_compared,
        help="rtol, atol, labels=OUTPUT,..., contents=true; may be given several times",
    )
    group = made.add_argument_group("promote")
    group.add_argument(
        "--steps", metavar="PERCENT,...", type=_steps, default=[100.0], help="(default: 100)"
    )
    group.add_argument(
        "--every",
        metavar="TIME",
        type=_time,
        default=600.0,
        help="how long a step lasts at least, such as 30s, 10m, 1h (default: 10m)",
    )
    return made


def run(arguments: Sequence[str]) -> int:
    """Run the command; the exit status."""
    return run_command("release", _release, parser().parse_intermixed_args(arguments))


async def _release(client: Client, options: Namespace) -> None:
    verb, name, targets = options.verb, options.alias, options.targets
    if not name and verb != "show":
        raise ArgumentTypeError(f"release {verb} needs the name of an alias")
    if len(targets) > {"set": len(targets), "promote": 1}.get(verb, 0):
        raise ArgumentTypeError(f"release {verb} takes no '{targets[-1]}'")
    if not name:
        _print_list(await client.aliases(), options)
    elif verb == "remove":
        await client.remove_alias(name)
        _say({"alias": name, "removed": True}, f"{name} is removed", options)
    elif verb == "history":
        _print_history(await client.alias(name), options)
    else:
        _print(await _changed(client, options), options)


async def _changed(client: Client, options: Namespace) -> Mapping[str, Any]:
    """The alias, after the change that is asked for, if one is."""
    name = options.alias
    if options.verb == "set":
        return await client.set_alias(name, _definition(options))
    if options.verb == "promote":
        plan = {"steps": options.steps, "every": options.every}
        target = options.targets[0] if options.targets else None
        return await client.promote_alias(name, target=target, **plan)
    if options.verb == "rollback":
        return await client.roll_back_alias(name)
    return await client.alias(name)


# -- what is set ----------------------------------------------------------------------------------


def _definition(options: Namespace) -> Mapping[str, Any]:
    if options.file:
        found = json.loads(Path(options.file).read_text("utf-8"))
        if not isinstance(found, dict):
            raise ArgumentTypeError(f"{options.file} is no JSON object")
        return found
    targets = [_target(text, "weight") for text in options.targets]
    made: dict[str, Any] = {"targets": targets}
    if options.sticky:
        made["sticky"] = options.sticky
    if options.guard:
        made["guard"] = dict(options.guard)
    if options.shadow:
        made["shadow"] = _target(options.shadow, "percent")
        if options.compare:
            made["shadow"]["compare"] = dict(options.compare)
    elif options.compare:
        raise ArgumentTypeError("--compare needs a --shadow")
    return made


def _target(text: str, share: str) -> dict[str, Any]:
    """A target of `MODEL[:VERSION][=PERCENT]`."""
    name, equals, percent = text.partition("=")
    model, colon, version = name.partition(":")
    found: dict[str, Any] = {"model": model}
    if colon:
        if not version.isdecimal():
            raise ArgumentTypeError(f"'{text}' is not MODEL[:VERSION][=PERCENT]")
        found["version"] = int(version)
    if equals:
        found[share] = _float(percent)
    return found


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ArgumentTypeError(f"'{text}' is not a number") from None


def _number(text: str) -> tuple[str, float]:
    name, value = assignment(text)
    number = _float(value)
    return name, int(number) if name == "min_requests" and number.is_integer() else number


def _compared(text: str) -> tuple[str, Any]:
    name, value = assignment(text)
    if name == "labels":
        return name, value.split(",")
    if name == "contents":
        return name, value == "true"
    return name, _float(value)


def _steps(text: str) -> list[float]:
    return [*map(_float, text.split(","))]


def _time(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if found is None:
        raise ArgumentTypeError(f"'{text}' is not a time such as 30s, 10m or 1h")
    return float(found[1]) * _UNITS[found[2]]


# -- what is shown --------------------------------------------------------------------------------


def _say(value: Any, text: str, options: Namespace) -> None:
    if options.json:
        print_json(value)
    else:
        print(text, flush=True)


def _print_list(aliases: Sequence[Mapping[str, Any]], options: Namespace) -> None:
    if options.json:
        print_json(aliases)
    else:
        rows = [(one["name"], _shares(one), one.get("sticky", "none")) for one in aliases]
        print_table(["ALIAS", "TARGETS", "STICKY"], rows)


def _print(shown: Mapping[str, Any], options: Namespace) -> None:
    if options.json:
        print_json(shown)
        return
    traffic = {one["target"]: one for one in shown.get("traffic", ())}
    targets = [(_name(one), one) for one in shown.get("targets", ())]
    print_table(_HEAD, [_row(name, one, traffic.get(name, {})) for name, one in targets])
    for line in _lines(shown):
        print(line, flush=True)


def _row(name: str, target: Mapping[str, Any], traffic: Mapping[str, Any]) -> tuple[object, ...]:
    window = traffic.get("window", {})
    counts = [where.get(key, 0) for where in (traffic, window) for key in ("requests", "failed")]
    times = [float(window.get(key, 0)) for key in ("p50_ms", "p99_ms")]
    return (name, float(target.get("weight", 100)), *counts, *times)


def _lines(shown: Mapping[str, Any]) -> Iterable[str]:
    if (sticky := shown.get("sticky", "none")) != "none":
        yield f"sticky: {sticky}"
    if guard := shown.get("guard"):
        yield "guard: " + ", ".join(f"{key} {value:g}" for key, value in guard.items())
    if moving := shown.get("promotion"):
        steps = ", ".join(f"{one:g}" for one in moving["steps"])
        yield (
            f"promotion: '{moving['target']}' by {steps} %; step {moving['step']},"
            f" the next in {moving.get('due_in', 0):g} s at the earliest"
        )
    if shadow := shown.get("shadow"):
        yield from _shadow_lines(shadow, shown.get("shadowed", {}))
    if history := shown.get("history"):
        yield f"last change: {_change(history[-1])}"


def _shadow_lines(shadow: Mapping[str, Any], counts: Mapping[str, Any]) -> Iterable[str]:
    told = ", ".join(
        f"{counts.get(one, 0)} {one}" for one in ("equal", "different", "failed", "dropped")
    )
    yield f"shadow: '{_name(shadow)}' {shadow.get('percent', 100):g} %: {told}"
    times = [
        f"{side} {each.get('p50_ms', 0):.2f} / {each.get('p99_ms', 0):.2f} ms"
        for side in ("first", "second")
        if (each := counts.get(side))
    ]
    if times:
        yield "  p50 / p99: " + ", ".join(times)
    differing = counts.get("differing", [])
    if len(differing) > _SHOWN:
        yield f"  the last {_SHOWN} that differ; --json has {len(differing)}:"
    for one in differing[-_SHOWN:]:
        yield f"  {one.get('id') or '(no id)'}, {one['target']}: {one['difference']}"
        if "first" in one or "second" in one:
            yield f"    {one.get('first', '')!r} | {one.get('second', '')!r}"


def _print_history(shown: Mapping[str, Any], options: Namespace) -> None:
    history = shown.get("history", [])
    if options.json:
        print_json(history)
    else:
        for change in history:
            print(_change(change), flush=True)


def _change(change: Mapping[str, Any]) -> str:
    at = datetime.fromtimestamp(change["at"]).astimezone()
    shares = _shares(change["alias"]) if change.get("alias") else "gone"
    return f"{at:%Y-%m-%d %H:%M:%S}  {shares}  {change['why']}"


def _shares(alias: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{_name(one)} {one.get('weight', 100):g} %" for one in alias.get("targets", ())
    )


def _name(target: Mapping[str, Any]) -> str:
    return f"{target['model']}:{target['version']}" if "version" in target else target["model"]
