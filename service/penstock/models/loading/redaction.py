"""Redaction: errors of loads as clients read them, without paths that only the log may have."""

from __future__ import annotations

import re

from penstock.core.errors import InferenceError, error_from_code
from penstock.models.repository.override import SCRATCH

_FOLDERS = r"(?<![\w./-])/(?:[^\s/'\":()]+/)*?"
_SCRATCH = re.compile(rf"{_FOLDERS}{SCRATCH}[^\s/'\":()]+/?")
_LIBRARIES = re.compile(rf"{_FOLDERS}(?=(?:site-packages|dist-packages|python3\.\d+)/)")


def redacted(error: InferenceError) -> InferenceError:
    """The error without the scratch folders of load requests, and without the places of libraries.

    Paths in a model repository stay, as in Triton.
    """
    text = _LIBRARIES.sub("", _SCRATCH.sub("", error.message))
    return error if text == error.message else error_from_code(error.code, text)
