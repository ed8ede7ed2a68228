"""Configurations, policies, aliases and what changes a server."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from fuzz.door import JSON, NONE, OURS, PROTO, PROTOBUF, Door, Read, json_of, text_of


def _pbtxt(_: Path) -> Read:
    from penstock.models.config.pbtxt import parse_pbtxt

    return lambda data: parse_pbtxt(data, "config.pbtxt")


def _override(_: Path) -> Read:
    from penstock.models.config.pbtxt import parse_override

    return lambda data: parse_override(text_of(data))


_CONFIG = {
    "name": "m",
    "backend": "python",
    "max_batch_size": 8,
    "input": [{"name": "X", "data_type": "TYPE_FP32", "dims": [-1, 4]}],
    "output": [{"name": "Y", "data_type": "TYPE_STRING", "dims": [1], "reshape": {"shape": []}}],
    "instance_group": [{"count": 2, "kind": "KIND_CPU", "rate_limiter": {"priority": 1}}],
    "dynamic_batching": {"preferred_batch_size": [4], "max_queue_delay_microseconds": 100},
    "parameters": {"k": {"string_value": "v"}},
    "version_policy": {"specific": {"versions": [1, 2]}},
}
_SEQUENCES = {
    "backend": "python",
    "sequence_batching": {
        "oldest": {"max_candidate_sequences": 4},
        "control_input": [
            {
                "name": "S",
                "control": [{"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 1]}],
            }
        ],
        "state": [{"input_name": "I", "output_name": "O", "data_type": "TYPE_INT32", "dims": [1]}],
    },
    "model_warmup": [{"name": "w", "inputs": {"X": {"dims": [4], "zero_data": True}}}],
}
_ENSEMBLE = {
    "platform": "ensemble",
    "ensemble_scheduling": {
        "step": [{"model_name": "a", "model_version": -1, "input_map": {"X": "x"}}]
    },
}
_CONFIGS = (_CONFIG, _SEQUENCES, _ENSEMBLE)


def _pbtxts() -> list[bytes]:
    from penstock.core.config.json_form import config_from_json
    from penstock.models.config.pbtxt import config_to_message

    return [str(config_to_message(config_from_json(one))).encode() for one in _CONFIGS]


def _controls(folder: Path) -> Read:
    """Load, trace and log requests over gRPC; the first byte says which."""
    from penstock.protocol import grpc_service_pb2 as pb
    from penstock.rpc.control_messages import decode_log, decode_trace, load_parameters, parse_load
    from penstock.settings import TraceSettings
    from penstock.tracing.settings import TraceControl

    traces = TraceControl(TraceSettings(file=str(folder / "trace.json")))

    def read(data: bytes) -> None:
        kind, message = data[:1], data[1:]
        if kind == b"l":
            load_parameters(parse_load(message).parameters)
        elif kind == b"t":
            traces.change(decode_trace(pb.TraceSettingRequest.FromString(message)), "m")
            traces.change({name: [] for name in ("trace_rate", "trace_level", "trace_count")}, "m")
        else:
            decode_log(pb.LogSettingsRequest.FromString(message).settings)

    return read


def _controls_examples() -> list[bytes]:
    from penstock.protocol import grpc_service_pb2 as pb

    load = pb.RepositoryModelLoadRequest(model_name="m")
    load.parameters["config"].string_param = json.dumps(_CONFIG)
    load.parameters["file:1/model.py"].bytes_param = b"pass"
    trace = pb.TraceSettingRequest(model_name="m")
    trace.settings["trace_level"].value.extend(["TIMESTAMPS"])
    trace.settings["trace_rate"].value.append("10")
    log = pb.LogSettingsRequest()
    log.settings["log_verbose_level"].uint32_param = 1
    log.settings["log_format"].string_param = "ISO8601"
    messages: tuple[Message, ...] = (load, trace, log)
    return [
        bytes([kind]) + message.SerializeToString()
        for kind, message in zip(b"ltx", messages, strict=True)
    ]


def _policy(_: Path) -> Read:
    from penstock.access.policy_file import parse_policy
    from penstock.settings import Feature

    def read(data: bytes) -> None:
        policy = parse_policy(text_of(data))
        permit = policy.caller("ann", ("team",)).permit(Feature.INFERENCE)
        if permit is not None:
            permit.sees("model-1")

    return read


_POLICY = b"""\
[callers.ann]
keys = ["sha256:%s"]
groups = ["team"]
certificates = ["spiffe://a/b", "dns:c"]

[tokens]
key_set = "/keys.json"
algorithms = ["RS256", "ES256"]
audience = "us"
issuer = "https://them"
groups_claim = "realm.roles"

[[rules]]
callers = ["ann", "group:team*"]
calls = ["inference", "metadata"]
models = ["model-*", "chat"]

[[rules]]
callers = ["*"]
calls = ["health"]
""" % (b"0" * 64)


def _key_set(_: Path) -> Read:
    from penstock.access.key_set import KeySet

    def read(data: bytes) -> None:
        keys = KeySet.parse(data)
        for kid, algorithm in (("r", "RS256"), ("o", "EdDSA")):
            if kid in keys:
                keys.key(kid, algorithm)

    return read


_KEYS = {
    "keys": [
        {"kid": "k", "kty": "EC", "crv": "P-256", "x": "AQ", "y": "Ag", "use": "sig"},
        {"kid": "r", "kty": "RSA", "n": "sXch", "e": "AQAB", "alg": "RS256"},
        {
            "kid": "o",
            "kty": "OKP",
            "crv": "Ed25519",
            "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        },
    ]
}


def _token(_: Path) -> Read:
    from penstock.access.key_set import KeySet
    from penstock.access.policy import AccessPolicy
    from penstock.access.token_settings import TokenSettings
    from penstock.access.tokens import TokenVerifier

    keys = KeySet.parse(json.dumps({"keys": _KEYS["keys"][2:]}).encode())
    settings = TokenSettings(
        key_set="keys.json", algorithms=("EdDSA",), issuer="them", audience="us"
    )
    verifier = TokenVerifier(settings, AccessPolicy({}, {}, (), settings), keys, time.time)

    def read(data: bytes) -> None:
        caller = verifier.caller(data.decode("latin-1"), str(len(data)))
        assert caller is None, "nobody has signed this"

    return read


def _tokens() -> list[bytes]:

    def part(value: Any) -> bytes:
        return urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    claims = {"sub": "ann", "aud": "us", "iss": "them", "exp": 4e9, "groups": ["team"]}
    heads = [
        {"alg": "EdDSA", "kid": "o"},
        {"alg": "none", "kid": "o"},
        {"alg": "HS256", "kid": "o"},
    ]
    return [b".".join((part(head), part(claims), b"AA")) for head in heads]


def _alias(_: Path) -> Read:
    from penstock.gateway.json.text import parse
    from penstock.models.releases.definition import parse_alias, parse_plan

    def read(data: bytes) -> None:
        fields = parse(data)
        plan = fields.pop("plan", {}) if isinstance(fields, dict) else {}
        parse_plan(parse_alias("alias", fields), plan)

    return read


_ALIAS = {
    "targets": [{"model": "a", "weight": 90}, {"model": "b", "version": 2, "weight": 10}],
    "sticky": "header x-user",
    "guard": {"min_requests": 10, "max_error_rate": 0.1, "max_p99_ratio": 2, "window": 60},
    "shadow": {"model": "c", "percent": 5, "compare": {"rtol": 1e-3, "labels": ["Y"]}},
}


def _address(_: Path) -> Read:
    from penstock.models.remote.address import BucketAddress, scheme_of

    def read(data: bytes) -> None:
        text = text_of(data)
        if scheme_of(text):
            BucketAddress.parse(text)

    return read


DOORS = {
    "pbtxt": Door(_pbtxt, _pbtxts, OURS, (b"{", b"}", b"[", b":", b"dims", b"\\377", b"#"), 400),
    "override": Door(_override, json_of(*_CONFIGS), OURS, JSON, 1500),
    "controls": Door(_controls, _controls_examples, PROTOBUF, PROTO),
    "policy": Door(
        _policy, lambda: [_POLICY], OURS, (b"[[", b'"""', b"*", b"]", b"'", b"\n"), 1500
    ),
    "key-set": Door(_key_set, json_of(_KEYS), OURS | {"PyJWTError"}, JSON, 1000),
    "token": Door(_token, _tokens, NONE, (b".", b"=", b"e30", b"bm9uZQ"), 1500),
    "alias": Door(_alias, json_of(_ALIAS | {"plan": {"steps": [1, 50], "every": 60}}), OURS, JSON),
    "address": Door(
        _address,
        lambda: [b"s3://https://h:9000/b/p", b"gs://b/p", b"as://a.blob.core.windows.net/c/p"],
        OURS,
        (b"://", b"/", b"..", b"%2f", b"\0", b"@"),
    ),
}
