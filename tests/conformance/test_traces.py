"""Trace files and trace settings as the real server's, asked the same in the same order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pytest

from conformance.agreement import ALLOWED, Setup, agreement
from harness import recorded
from harness.serving import wait_until
from penstock.core.errors import InferenceError
from penstock.settings import OpenTelemetrySettings, TraceSettings
from penstock.tracing.settings import TraceControl, trace_texts

pytestmark = recorded.needs_answers

_MODELS = ("simple", "simple_dyn", "ensemble_identity", "bls_identity", "repeat_int32")
_ARGUMENTS = (
    "--trace-config=triton,file={folder}/tr.json",
    "--model-control-mode=explicit",
    *(f"--load-model={model}" for model in _MODELS),
    *ALLOWED,
)


@dataclass(frozen=True)
class Told:
    """What a trace file tells of one request: names, tensors, and points in the order of time."""

    request: tuple[Any, ...]
    tensors: list[Any]
    core: list[str]
    endpoint: list[str]


def _told(objects: Sequence[Mapping[str, Any]]) -> dict[str, list[Told]]:
    """By the ids of clients' requests, and then in the order of their models."""
    by_id: dict[int, list[Mapping[str, Any]]] = {}
    for each in objects:
        by_id.setdefault(each["id"], []).append(each)
    names = {
        number: next(each for each in parts if "model_name" in each)
        for number, parts in by_id.items()
    }
    found: dict[str, list[Told]] = {}
    for number, parts in by_id.items():
        named = names[number]
        parent = names[named["parent_id"]]["model_name"] if "parent_id" in named else None
        stamps = [stamp for each in parts for stamp in each.get("timestamps", [])]
        points = [stamp["name"] for stamp in sorted(stamps, key=lambda stamp: stamp["ns"])]
        told = Told(
            (named["model_name"], named["model_version"], parent),
            [(each["activity"], each["tensor"]) for each in parts if "tensor" in each],
            [each for each in points if each.startswith(("REQUEST_", "QUEUE_", "COMPUTE_"))],
            [each for each in points if each.startswith(("GRPC_", "HTTP_", "INFER_"))],
        )
        found.setdefault(named.get("request_id", ""), []).append(told)
    return {id: sorted(each, key=lambda told: told.request[0]) for id, each in found.items()}


def _recorded_files() -> Iterator[list[Any]]:
    text, decoder, at = recorded.log("trace_output.json"), json.JSONDecoder(), 0
    while at < len(text):
        objects, at = decoder.raw_decode(text, at)
        yield objects


@pytest.fixture(scope="module")
def traced() -> list[Any]:
    """The trace files of the requests that were recorded."""
    with Setup(("good",), ("trace_with_file",), _ARGUMENTS).peer() as peer:
        _, differing = agreement("trace_with_file", peer)
        assert differing == {}
        folder = peer.repository.parent
        expected = len([*_recorded_files()])
        wait_until(lambda: len([*folder.glob("tr.json.*")]) >= expected)
        return [json.loads(path.read_text()) for path in folder.glob("tr.json*")]


@pytest.mark.contract("T-01", "T-02", "T-05", "T-06", "T-08", "T-19", "G-20", "H-11", "X-13")
def test_each_trace_has_a_file_as_in_the_real_server(traced: list[Any]) -> None:
    assert len(traced) == len([*_recorded_files()])


@pytest.mark.contract("T-07", "T-09", "T-10", "T-23")
def test_requests_pass_the_same_points_as_in_the_real_server(traced: list[Any]) -> None:
    """A model's call of another is part of the trace here without its doing anything for it."""
    ours = _told([*chain.from_iterable(traced)])
    theirs = _told([*chain.from_iterable(_recorded_files())])
    (called,) = ours.pop("")
    assert called.request == ("identity_fp32", 1, "bls_identity")
    assert ours == theirs


@pytest.mark.contract("T-19", "T-20", "X-13")
@pytest.mark.parametrize(
    ("file", "start"),
    [
        ("trace_with_file", TraceSettings(file="$WORK/gr/tr.json")),
        ("trace_without_file", TraceSettings()),
        (
            "trace_opentelemetry",
            TraceSettings(
                mode="opentelemetry",
                opentelemetry=OpenTelemetrySettings(url="127.0.0.1:1/v1/traces"),
            ),
        ),
    ],
)
def test_settings_are_answered_as_by_the_real_server(file: str, start: TraceSettings) -> None:
    control = TraceControl(start, tensors=True)
    for case in recorded.answers(f"{file}.json").values():
        if case.get("rpc") == "TraceSetting":
            texts = case["request"].get("settings", {})
            assert _answer(control, {k: v["value"] for k, v in texts.items()}) == _expected(case)


def _answer(control: TraceControl, texts: Mapping[str, Sequence[str]]) -> Any:
    try:
        if texts:
            control.change(texts)
    except InferenceError as error:
        return error.message
    return trace_texts(control.current())


def _expected(case: Mapping[str, Any]) -> Any:
    if case["code"] != "OK":
        return case["message"]
    return {name: value["value"] for name, value in case["response"]["settings"].items()}
