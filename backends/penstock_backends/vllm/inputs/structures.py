"""Objects among the sampling parameters: a constraint of the output, and their keys."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from penstock.backend import suggestion
from penstock_backends.language_model import refuse
from penstock_backends.language_model.constraints import NAME, check_constraint

_FORMER: Final = "guided_decoding"
_BACKEND: Final = "backend"
_BACKENDS: Final = (None, "auto", "xgrammar", "xgrammar:no-fallback")
"""Names of a backend that change nothing; any other is chosen for a whole model."""


def take_structure(values: dict[str, Any]) -> None:
    """Convert the constraint in `values`: an object or JSON text, by the new or old name.

    Raises `InvalidRequestError` for one that is no object, or would take too long to compile.
    """
    old = values.pop(_FORMER, None)
    if old is not None and NAME not in values:
        values[NAME] = old
    structure = values.get(NAME)
    if isinstance(structure, str):
        try:
            structure = json.loads(structure)
        except (ValueError, RecursionError):
            refuse(NAME, "must be an object, or JSON text of one")
    if isinstance(structure, dict):
        check_constraint(structure)
        if structure.get(_BACKEND) not in _BACKENDS:
            refuse(
                NAME,
                f"cannot choose the backend {json.dumps(structure[_BACKEND])}: "
                "'structured_outputs_config' in model.json does, for all requests",
            )
        values[NAME] = {key: value for key, value in structure.items() if key != _BACKEND}


def refuse_unknown_keys(values: Mapping[str, Any]) -> None:
    """Refuse keys of objects that vLLM's own classes would pass over without a word."""
    from vllm.sampling_params import RepetitionDetectionParams, StructuredOutputsParams

    for name, kind in (
        (NAME, StructuredOutputsParams),
        ("repetition_detection", RepetitionDetectionParams),
    ):
        given = values.get(name)
        if not isinstance(given, dict):
            continue
        known = [field.name for field in fields(kind) if field.init]
        for key in given:
            if key not in known:
                refuse(name, f"has no '{key}'{suggestion(str(key), known)}")
