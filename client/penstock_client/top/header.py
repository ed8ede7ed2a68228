"""The lines above the table: which server, whether it answers, its totals and its machine."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from penstock_client.reading.counters import GpuNumbers
from penstock_client.top.texts import count, percent, printable, size
from penstock_client.top.view import View

_GOOD, _BAD, _CARE, _WEAK = "bold green", "bold red", "bold yellow", "dim"


def header(view: View, address: str, interval: float, now: float) -> Text:
    """The lines of `view` at the time `now`, by the clock of its readings."""
    lines = [_first(view, address, interval), *_problems(view, now), _totals(view)]
    machine = _machine(view)
    if machine.plain:
        lines.append(machine)
    head = Text("\n").join(lines)
    head.no_wrap, head.overflow = True, "ellipsis"
    return head


def _first(view: View, address: str, interval: float) -> Text:
    line = Text.assemble(("penstock top", "bold"), f"  {address}  ")
    line.append_text(_state(view))
    if view.server:
        line.append(f"  {printable(view.server)}")
    return line.append(f"  every {interval:g} s", _WEAK)


def _state(view: View) -> Text:
    if view.stale and view.problems:
        return Text("NO ANSWER", _BAD)
    if not view.begun:
        return Text("connecting", _CARE)
    if view.ready is None:
        return Text("readiness unknown", _CARE)
    return Text("READY", _GOOD) if view.ready else Text("NOT READY", _BAD)


def _problems(view: View, now: float) -> Iterator[Text]:
    """Why an endpoint does not answer; where none does, since when."""
    if not view.problems:
        return
    if len(view.problems) > 1 and len(set(view.problems.values())) == 1:
        reasons = printable(next(iter(view.problems.values())))
    else:
        reasons = "; ".join(f"{name}: {printable(why)}" for name, why in view.problems.items())
    if not view.stale:
        yield Text(reasons, _CARE)
        return
    waited = max(0.0, now - (view.failing_since or now))
    old = ", figures are the last ones" if view.begun else ""
    yield Text(f"tried for {waited:.0f} s{old}: {reasons}", _BAD)


def _totals(view: View) -> Text:
    ready = sum(model.state == "READY" for model in view.models)
    line = Text(f"{len(view.models)} model{'s' if len(view.models) != 1 else ''}")
    if any(model.state for model in view.models):
        line.append(f", {ready} ready")
    if view.not_loaded:
        line.append(f", {view.not_loaded} not loaded")
    totals = view.totals
    for title, value in (
        ("req/s", totals.requests),
        ("err/s", totals.errors),
        ("tok/s", totals.tokens),
        ("flight", totals.in_flight),
        ("queue", totals.pending),
    ):
        if value is not None:
            bad = title == "err/s" and value > 0
            line.append(f"  {title} ").append(count(value), _BAD if bad else "bold")
    return line


def _machine(view: View) -> Text:
    machine = view.machine
    line = Text()
    if machine.cpu is not None:
        line.append(f"cpu {percent(machine.cpu)}  ")
    if machine.memory_total:
        line.append(f"memory {size(machine.memory_used)} of {size(machine.memory_total)}  ")
    for number, gpu in enumerate(machine.gpus):
        line.append(_gpu(number, gpu))
    return line


def _gpu(number: int, gpu: GpuNumbers) -> str:
    power = "" if gpu.power is None else f" {gpu.power:.0f} W"
    memory = f"{size(gpu.memory_used)} of {size(gpu.memory_total)}"
    return f"gpu{number} {percent(gpu.utilization)} {memory}{power}  "
