"""Names of numbers with labels of their own, written as in Prometheus: `name{label="value"}`.

A backend reports its numbers by name; one that has several of a kind tells them apart by labels.
"""

from __future__ import annotations

import re
from functools import lru_cache

from penstock.metrics.exposition import Labels

_NAMED = re.compile(r"([^{]*)\{(.*)\}", re.DOTALL)
_LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"', re.ASCII | re.DOTALL)
_PLAIN = {"\\": "\\", "n": "\n", '"': '"'}
_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


def series_name(name: str, **labels: str) -> str:
    """The name of one number of a family, with labels that are not empty."""
    written = [
        f'{key}="{labels[key].translate(_ESCAPES)}"' for key in sorted(labels) if labels[key]
    ]
    return f"{name}{{{','.join(written)}}}" if written else name


@lru_cache(4096)
def split_series_name(name: str) -> tuple[str, Labels]:
    """The family and the labels of a name that `series_name` made; of any other, itself."""
    if (found := _NAMED.fullmatch(name)) is None:
        return name, ()
    return found[1], tuple((key, _read(value)) for key, value in _LABEL.findall(found[2]))


def _read(value: str) -> str:
    return re.sub(r"\\(.)", lambda escaped: _PLAIN.get(escaped[1], escaped[1]), value)
