"""The report of all cuts: numbers, and a table of the wires that no test holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .wires import all_wires, without_use

UNNOTICED = "-"
"""The outcome of a cut that no test notices."""


def lines(cuts: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """The report, in Markdown."""
    told, last = without_use(), {each["wire"]: each["noticed"] for each in cuts}
    rows = {wire: _state(wire, told, last) for wire in all_wires()}
    for state in sorted(set(rows.values())):
        yield f"{sum(each == state for each in rows.values())} {state}"
    yield from ("", "| wire | what became of it |", "|---|---|")
    yield from (f"| `{wire}` | {state} |" for wire, state in rows.items() if state != "noticed")


def _state(wire: str, told: Mapping[str, str], last: Mapping[str, str]) -> str:
    if wire in told:
        return told[wire]
    if wire not in last:
        return "given by no test through the door"
    return "given, and the cut is not noticed" if last[wire] == UNNOTICED else "noticed"
