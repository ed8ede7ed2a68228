"""The JSON of requests and responses, as JSON Schema."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_COUNT: Schema = {"type": "integer", "minimum": 0}
_OBJECT: Schema = {"type": "object"}
_DATATYPES = (
    *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FP16", "BF16", "FP32", "FP64", "BYTES"),
)


def _object(required: tuple[str, ...] = (), **members: Schema) -> Schema:
    found: Schema = {"type": "object", "properties": members}
    return {**found, "required": list(required)} if required else found


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def ref(name: str) -> Schema:
    """A reference to one of `SCHEMAS`."""
    return {"$ref": f"#/components/schemas/{name}"}


_DATATYPE: Schema = {"type": "string", "enum": list(_DATATYPES)}
_SHAPE = _array({"type": "integer"})
_DATA: Schema = {
    "type": "array",
    "description": "Elements in row-major order, flat or nested by dimensions.",
}
_PARAMETERS: Schema = {
    "type": "object",
    "additionalProperties": {"type": ["string", "integer", "number", "boolean"]},
}
_TENSOR_METADATA = _object(("name", "datatype", "shape"), name=_TEXT, datatype=_TEXT, shape=_SHAPE)
_NUMBER: Schema = {"type": "number"}
_ALIAS = _object(
    ("targets",),
    name=_TEXT,
    targets=_array(_object(("model",), model=_TEXT, version=_COUNT, weight=_NUMBER)),
    sticky=_TEXT,
    guard=_object(
        min_requests=_COUNT, max_error_rate=_NUMBER, max_p99_ratio=_NUMBER, window=_NUMBER
    ),
    shadow=_object(
        ("model",),
        model=_TEXT,
        version=_COUNT,
        percent=_NUMBER,
        compare=_object(rtol=_NUMBER, atol=_NUMBER, labels=_array(_TEXT), contents=_FLAG),
    ),
)
_DURATION = _object(("count", "ns"), count=_COUNT, ns=_COUNT)
_STATISTICS = _object(
    ("name", "version", "inference_count", "execution_count"),
    name=_TEXT,
    version=_TEXT,
    last_inference=_COUNT,
    inference_count=_COUNT,
    execution_count=_COUNT,
    inference_stats={"type": "object", "additionalProperties": _DURATION},
    response_stats=_OBJECT,
    batch_stats=_array(_OBJECT),
    memory_usage=_array(_OBJECT),
)

SCHEMAS: dict[str, Schema] = {
    "Error": _object(("error",), error=_TEXT),
    "Live": _object(("live",), live={"type": "boolean"}),
    "Ready": _object(("ready",), ready={"type": "boolean"}),
    "ModelReady": _object(("name", "ready"), name=_TEXT, ready={"type": "boolean"}),
    "ServerMetadata": _object(
        ("name", "version", "extensions"), name=_TEXT, version=_TEXT, extensions=_array(_TEXT)
    ),
    "ModelMetadata": _object(
        ("name", "versions", "platform", "inputs", "outputs"),
        name=_TEXT,
        versions=_array(_TEXT),
        platform=_TEXT,
        inputs=_array(_TENSOR_METADATA),
        outputs=_array(_TENSOR_METADATA),
    ),
    "ModelConfig": {"type": "object", "description": "The model's configuration in full."},
    "Statistics": _object(("model_stats",), model_stats=_array(_STATISTICS)),
    "InferRequest": _object(
        ("inputs",),
        id=_TEXT,
        parameters=_PARAMETERS,
        inputs=_array(
            _object(
                ("name", "shape", "datatype"),
                name=_TEXT,
                shape=_array(_COUNT),
                datatype=_DATATYPE,
                parameters=_PARAMETERS,
                data=_DATA,
            )
        ),
        outputs=_array(_object(("name",), name=_TEXT, parameters=_PARAMETERS)),
    ),
    "InferResponse": _object(
        ("model_name", "model_version", "outputs"),
        model_name=_TEXT,
        model_version=_TEXT,
        id=_TEXT,
        parameters=_OBJECT,
        outputs=_array(
            _object(
                ("name", "datatype", "shape"),
                name=_TEXT,
                datatype=_DATATYPE,
                shape=_SHAPE,
                parameters=_OBJECT,
                data=_DATA,
            )
        ),
    ),
    "GenerateRequest": {
        "type": "object",
        "description": "Inputs by their names; other members are parameters.",
        "properties": {"id": _TEXT, "parameters": _OBJECT},
    },
    "GenerateResponse": {
        "type": "object",
        "description": "Outputs by their names, beside the names of model and version.",
    },
    "IndexRequest": _object(ready=_FLAG),
    "Index": _array(
        _object(("name",), name=_TEXT, version=_TEXT, state=_TEXT, reason=_TEXT),
    ),
    "Alias": _ALIAS,
    "Aliases": _array(_ALIAS),
    "AliasWithHistory": _object(
        ("name", "history"),
        **_ALIAS["properties"],
        traffic=_array(_OBJECT),
        promotion=_OBJECT,
        shadowed=_OBJECT,
        history=_array(_object(("at", "why"), at=_NUMBER, why=_TEXT, cause=_TEXT, alias=_ALIAS)),
    ),
    "Promotion": _object(target=_TEXT, steps=_array(_NUMBER), every=_NUMBER),
    "LoadRequest": _object(parameters=_PARAMETERS),
    "UnloadRequest": _object(parameters=_object(unload_dependents=_FLAG, versions=_TEXT)),
    "SystemRegions": _array(
        _object(
            ("name", "key", "offset", "byte_size"),
            name=_TEXT,
            key=_TEXT,
            offset=_COUNT,
            byte_size=_COUNT,
        )
    ),
    "SystemRegion": _object(("key", "byte_size"), key=_TEXT, offset=_COUNT, byte_size=_COUNT),
    "CudaRegions": _array(
        _object(("name", "device_id", "byte_size"), name=_TEXT, device_id=_COUNT, byte_size=_COUNT)
    ),
    "CudaRegion": _object(
        ("raw_handle", "device_id", "byte_size"),
        raw_handle=_object(("b64",), b64=_TEXT),
        device_id=_COUNT,
        byte_size=_COUNT,
    ),
    "TraceSettings": {
        "type": "object",
        "additionalProperties": {"type": ["string", "array", "null"]},
    },
    "LogSettings": _object(
        log_file=_TEXT,
        log_info=_FLAG,
        log_warning=_FLAG,
        log_error=_FLAG,
        log_verbose_level=_COUNT,
        log_format={"type": "string"},
    ),
    "Any": {"description": "As the engine has it."},
}

_MODEL = _object(
    ("id", "object", "created", "owned_by"), id=_TEXT, object=_TEXT, created=_COUNT, owned_by=_TEXT
)
_NULLABLE: Schema = {"type": ["string", "null"]}

OPENAI_SCHEMAS: dict[str, Schema] = {
    "OpenAiError": _object(
        ("error",),
        error=_object(
            ("message", "type", "param", "code"),
            message=_TEXT,
            type=_TEXT,
            param=_NULLABLE,
            code={"type": ["string", "integer", "null"]},
        ),
    ),
    "OpenAiModel": _MODEL,
    "OpenAiModels": _object(("object", "data"), object=_TEXT, data=_array(ref("OpenAiModel"))),
    "OpenAiUnloaded": _object(("status", "model"), status=_TEXT, model=_TEXT),
    "OpenAiCancelled": _object(
        ("id", "object", "cancelled"), id=_TEXT, object=_TEXT, cancelled=_FLAG
    ),
}
"""Schemas of OpenAI's API as the server itself speaks it."""
