"""A page of HTML that loads nothing from elsewhere: headings, tables, charts, words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from string import Template

from penstock_client.perf.report.charts import MISSING, can_draw

_PAGE = Template("""\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>$title</title><style>
body{font:15px/1.5 system-ui,sans-serif;color:#1a1a1a}
body{max-width:1180px;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;margin:.6em 0 1.4em}
th,td{padding:.25em .8em;text-align:right;border-bottom:1px solid #d9dee3}
th:first-child,td:first-child{text-align:left}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(420px,1fr));gap:1em}
svg{width:100%;height:auto;background:#fff;border:1px solid #d9dee3}
.bad{color:#a4161a;font-weight:600}
pre{white-space:pre-wrap;background:#f4f6f8;padding:.6em .8em}
</style></head><body><h1>$title</h1>
$parts</body></html>
""")
"""All that is the same in every page."""


def page(title: str, parts: Iterable[str]) -> str:
    """A whole page."""
    return _PAGE.substitute(title=escape(title), parts="".join(parts))


def heading(text: str) -> str:
    """A heading of a section."""
    return f"<h2>{escape(text)}</h2>\n"


def words(text: str, *, bad: bool = False) -> str:
    """A paragraph; one that is `bad` stands out."""
    return f"<p{' class=bad' if bad else ''}>{escape(text)}</p>\n"


def verbatim(text: str) -> str:
    """Text as it is."""
    return f"<pre>{escape(text)}</pre>\n"


def html_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; numbers are written with four digits that count."""
    lines = [f"<tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>"]
    lines += [
        f"<tr>{''.join(f'<td>{escape(cell(each))}</td>' for each in row)}</tr>" for row in rows
    ]
    return f"<table>{''.join(lines)}</table>\n"


def charts(drawn: Iterable[str]) -> str:
    """Charts beside each other where there is room, or what to install for them."""
    if not can_draw():
        return words(f"{MISSING}.")
    return f'<div class="charts">{"".join(drawn)}</div>\n'


def cell(value: object) -> str:
    """A value as it stands in a table."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
