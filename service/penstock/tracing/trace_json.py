"""The JSON of trace files (contract T-07 to T-10, T-23)."""

from __future__ import annotations

import json
from functools import lru_cache
from operator import itemgetter
from typing import Any

from penstock.core.errors import InferenceError
from penstock.core.tensor import DataType, Tensor
from penstock.core.timeline import Timeline, Trace, TracedTensor

_NOT_IN_FILES = frozenset({"CACHE_LOOKUP_START", "CACHE_LOOKUP_END", "FIRST_RESPONSE"})
"""Points that the server marks and Triton has no name for; those of models are custom ones."""

_ONCE = "INFER_RESPONSE_COMPLETE"
"""A point that Triton notes at the first response only."""


def trace_json(trace: Trace) -> str:
    """The objects of one trace, separated by commas; empty if no model got a request.

    Each request has an object that names it, then one for each point of its way and for each
    tensor, in the order of time; what the endpoint noted is with the client's own request. The
    latest requests come first, since an ensemble ends after its steps.
    """
    objects: list[str] = []
    for timeline in sorted(trace.timelines, key=_number, reverse=True):
        _add_objects(objects, timeline, trace)
    return ",".join(objects)


def _number(timeline: Timeline) -> int:
    return timeline.number


def _add_objects(objects: list[str], timeline: Timeline, trace: Trace) -> None:
    number = timeline.number
    entries: list[tuple[int, str]] = []
    if "TIMESTAMPS" in trace.levels:
        objects.append(_names(timeline))
        marks = timeline.marks
        if timeline.parent is trace.root:
            marks = [*marks, *trace.root.marks]
        # There are many, and this is several times as fast as `json`.
        start, complete = f'{{"id":{number},"timestamps":[{{"name":', False
        for name, at in marks:
            if name in _NOT_IN_FILES or (name == _ONCE and complete):
                continue
            complete = complete or name == _ONCE
            entries.append((at, f'{start}{_quoted(name)},"ns":{at}}}]}}'))
    entries += [(each.at, _json({"id": number, **_tensor(each)})) for each in timeline.tensors]
    entries.sort(key=itemgetter(0))
    objects += [text for _, text in entries]


_json = json.JSONEncoder(separators=(",", ":")).encode
_quoted = lru_cache(512)(json.dumps)


def _names(timeline: Timeline) -> str:
    version = timeline.version
    text = (
        f'{{"id":{timeline.number},"model_name":{_quoted(timeline.model)},'
        f'"model_version":{int(version) if version.isdecimal() else -1}'
    )
    if timeline.request_id:
        text += f',"request_id":{json.dumps(timeline.request_id)}'
    if timeline.parent is not None and timeline.parent.number:
        text += f',"parent_id":{timeline.parent.number}'
    return text + "}"


def _tensor(traced: TracedTensor) -> dict[str, Any]:
    tensor = traced.tensor
    try:
        text = tensor_text(tensor)
    except (InferenceError, ValueError) as error:  # a model's output may be anything
        text = f"not readable: {error}"
    described = {
        "name": traced.name,
        "data": text,
        "shape": ",".join(map(str, tensor.shape)),
        "dtype": tensor.datatype.value,
    }
    return {"activity": traced.activity, "tensor": described}


def tensor_text(tensor: Tensor) -> str:
    """The elements as text, separated by commas, as C++ prints them: floats with six digits.

    Triton prints 8-bit integers as characters, and nothing of half floats; here both are numbers.
    Elements of BYTES are in quotation marks, and what is not UTF-8 in them is escaped.
    """
    if tensor.datatype is DataType.BYTES:
        texts = (each.decode("utf-8", "backslashreplace") for each in tensor.elements())
        return ",".join(f'"{text}"' for text in texts)
    array = tensor.numpy().reshape(-1)
    if tensor.datatype is DataType.BF16:
        array = (array.astype("<u4") << 16).view("<f4")
    if array.dtype.kind == "f":
        return ",".join(f"{value:g}" for value in array.tolist())
    return ",".join(str(int(value)) for value in array.tolist())
