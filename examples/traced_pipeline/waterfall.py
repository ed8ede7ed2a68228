"""A trace drawn as a waterfall, in SVG: a row a span, children below their parents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from examples.traced_pipeline.jaeger_api import Span

_LABELS, _BARS, _ROW, _HEAD = 360, 640, 22, 34
_COLOURS = "#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2"


def draw(spans: Sequence[Span], title: str) -> str:
    """The picture; events are ticks on the bars, a service has one colour."""
    rows = list(as_rows(spans))
    begin = min(span.begin for span in spans)
    length = max(max(span.end for span in spans) - begin, 1)
    services = list(dict.fromkeys(span.service for span in spans))
    colours = {name: _COLOURS[i % len(_COLOURS)] for i, name in enumerate(services)}
    height = _HEAD + _ROW * (len(rows) + 1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LABELS + _BARS + 90}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="20" font-size="14">{escape(title)}</text>',
    ]
    for number, (depth, span) in enumerate(rows):
        top = _HEAD + number * _ROW
        left = _LABELS + _BARS * (span.begin - begin) / length
        width = max(_BARS * span.duration / length, 1.5)
        if number % 2:
            parts.append(f'<rect y="{top}" width="100%" height="{_ROW}" fill="#f5f5f5"/>')
        parts += [
            f'<text x="{8 + 14 * depth}" y="{top + 15}">{escape(span.name)}</text>',
            f'<rect x="{left:.1f}" y="{top + 5}" width="{width:.1f}" height="12" rx="2"'
            f' fill="{colours[span.service]}"/>',
            f'<text x="{left + width + 4:.1f}" y="{top + 15}" fill="#555"'
            f' font-size="10">{_duration(span.duration)}</text>',
        ]
        for name, at in span.events:
            x = _LABELS + _BARS * (at - begin) / length
            parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top + 3}" y2="{top + 19}" stroke="#222">'
                f"<title>{escape(name)}</title></line>"
            )
    legend = _HEAD + len(rows) * _ROW + 15
    for number, service in enumerate(services):
        x = 8 + 220 * number
        parts += [
            f'<rect x="{x}" y="{legend - 10}" width="10" height="10" fill="{colours[service]}"/>',
            f'<text x="{x + 15}" y="{legend}">{escape(service)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])


def as_rows(spans: Sequence[Span]) -> Iterator[tuple[int, Span]]:
    """The spans with their depths, each before its children; orphans count as roots."""
    known = {span.id for span in spans}
    below: dict[str, list[Span]] = {}
    for span in spans:
        below.setdefault(span.parent if span.parent in known else "", []).append(span)
    waiting = [(0, span) for span in reversed(below.get("", []))]
    while waiting:
        depth, span = waiting.pop()
        yield depth, span
        waiting += [(depth + 1, child) for child in reversed(below.get(span.id, []))]


def _duration(microseconds: int) -> str:
    return f"{microseconds / 1000:.1f} ms" if microseconds >= 1000 else f"{microseconds} us"
