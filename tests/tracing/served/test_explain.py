"""`penstock-explain`: the timeline of a request, as its client gets it."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from harness.serving import Served
from tracing.served.calls import EXPLAIN, explained, explanations, request, stub


def _statistics(server: Served, model: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{server.http}/v2/models/{model}/stats") as reply:
        stats: dict[str, Any] = json.load(reply)["model_stats"][0]["inference_stats"]
    return stats


def _metric(server: Served, name: str, model: str) -> float:
    with urllib.request.urlopen(server.metrics) as reply:
        lines = reply.read().decode().splitlines()
    found = [line for line in lines if line.startswith(f'{name}{{model="{model}"')]
    return float(found[0].rpartition(" ")[2])


def _post(server: Served, path: str, body: Any, **headers: str) -> tuple[Any, bytes]:
    address = f"http://{server.http}/v2/models/{path}"
    data = json.dumps(body).encode()
    asked = urllib.request.Request(address, data, {"penstock-explain": "1", **headers})
    with urllib.request.urlopen(asked) as reply:
        return reply.headers, reply.read()


def _body(*values: float) -> dict[str, Any]:
    tensor = {"name": "IN", "datatype": "FP32", "shape": [len(values)], "data": values}
    return {"id": "h", "inputs": [tensor]}


def test_a_unary_call_is_explained_in_its_trailing_metadata(server: Served) -> None:
    (told,) = explained(server.grpc, request("plain", 1, id="mine"))
    assert told["request_id"] == "mine"
    (one,) = told["requests"]
    assert one["model"] == "plain"
    assert one["version"] == "1"
    assert one["instance"] == "plain_0"
    assert one["batch"] == {"requests": 1, "rows": 1}
    phases = ("queue_us", "compute_input_us", "compute_infer_us", "compute_output_us")
    assert 0 < sum(one[phase] for phase in phases) <= one["total_us"] + 1 <= told["total_us"] + 2


def test_no_explanation_without_the_metadata(server: Served) -> None:
    assert explained(server.grpc, request("plain", 1), ()) == []
    assert explained(server.grpc, request("plain", 1), [("penstock-explain", "0")]) == []


def test_explanation_equals_statistics_and_metrics(server: Served) -> None:
    before, waited = _statistics(server, "bls"), _metric(server, _QUEUED, "bls")
    (told,) = explained(server.grpc, request("bls", 0))
    after = _statistics(server, "bls")
    (one,) = told["requests"]
    names = {"queue": "queue_us", "success": "total_us"}
    names |= {phase: f"{phase}_us" for phase in ("compute_input", "compute_infer")}
    for counter, name in names.items():
        spent = after[counter]["ns"] - before[counter]["ns"]
        assert one[name] == pytest.approx(spent / 1000, abs=0.1), counter
    assert _metric(server, _QUEUED, "bls") - waited == pytest.approx(one["queue_us"], abs=1.1)


_QUEUED = "nv_inference_queue_duration_us"


def test_batch_of_several_requests(server: Served) -> None:
    with ThreadPoolExecutor(4) as threads:
        calls = [
            threads.submit(explained, server.grpc, request("batched", number, rows=1))
            for number in range(4)
        ]
        told = [call.result()[0]["requests"][0] for call in calls]
    assert [one["batch"] for one in told] == [{"requests": 4, "rows": 4}] * 4


def test_cache_lookups(server: Served) -> None:
    first, second = (explained(server.grpc, request("cached", 5))[0] for _ in range(2))
    assert first["requests"][0]["cache"] == "miss"
    assert second["requests"][0]["cache"] == "hit"
    assert "batch" not in second["requests"][0]
    assert second["requests"][0]["cache_lookup_us"] > 0


def test_steps_and_calls_of_models_name_what_they_are_part_of(server: Served) -> None:
    (told,) = explained(server.grpc, request("ensemble", 2))
    models = [(one["model"], one.get("parent")) for one in told["requests"]]
    assert models == [("ensemble", None), ("plain", 0), ("bls", 0), ("plain", 2), ("plain", 2)]
    assert all(one["total_us"] <= told["requests"][0]["total_us"] for one in told["requests"])


def test_what_does_not_fit_into_metadata_is_counted(server: Served) -> None:
    (told,) = explained(server.grpc, request("bls", 200))
    assert len(json.dumps(told, separators=(",", ":"))) <= 6 << 10
    assert told["requests_left_out"] + len(told["requests"]) == 201


def test_errors_are_explained(server: Served) -> None:
    (told,) = explained(server.grpc, request("plain", 1, rows=1))
    assert "unexpected shape for input 'IN'" in told["error"]
    (told,) = explained(server.grpc, request("bls", float("inf")))
    assert "cannot convert float infinity to integer" in told["error"]
    assert told["requests"][0]["error"] == told["error"]


def test_requests_of_a_stream_are_explained_each(server: Served) -> None:
    channel, service = stub(server.grpc)
    messages = [request("stream", 3, id="1"), request("plain", 1, id="2"), request("no", 1, id="3")]
    with channel:
        call = service.ModelStreamInfer(iter(messages), metadata=EXPLAIN, timeout=60)
        assert len(list(call)) == 5
        told = {one["request_id"]: one for one in explanations(call.trailing_metadata())}
    assert told["1"]["requests"][0]["responses"] == 3
    assert told["1"]["requests"][0]["first_response_us"] < told["1"]["total_us"]
    assert told["2"]["requests"][0]["model"] == "plain"
    assert "unknown model" in told["3"]["error"]


def test_explanations_of_a_long_stream_fit_into_its_metadata(server: Served) -> None:
    channel, service = stub(server.grpc)
    with channel:
        messages = (request("plain", 1, id=str(n)) for n in range(100))
        call = service.ModelStreamInfer(messages, metadata=EXPLAIN, timeout=60)
        assert len(list(call)) == 100
        assert 0 < len(explanations(call.trailing_metadata())) < 100
        assert call.code() is grpc.StatusCode.OK


def test_http_replies_are_explained_in_a_header(server: Served) -> None:
    headers, body = _post(server, "plain/infer", _body(7))
    assert json.loads(body)["outputs"][0]["data"] == [7]
    told = json.loads(headers["penstock-explain"])
    assert told["request_id"] == "h"
    assert told["requests"][0]["model"] == "plain"
    headers, body = _post(server, "plain/generate", {"IN": 7})
    assert json.loads(headers["penstock-explain"])["requests"][0]["responses"] == 1


def test_http_errors_are_explained(server: Served) -> None:
    bodies: list[Any] = [{"inputs": []}, _body(1) | {"outputs": [{"name": "NO"}]}]
    for body in bodies:
        with pytest.raises(urllib.error.HTTPError) as refused:
            _post(server, "plain/infer", body)
        with refused.value as reply:
            assert "error" in json.loads(reply.headers["penstock-explain"])


def test_event_streams_end_with_the_explanation(server: Served) -> None:
    _, body = _post(server, "stream/generate_stream", {"IN": 2})
    events = body.decode().split("\n\n")
    assert [event.partition(":")[0] for event in events[:3]] == ["data", "data", "event"]
    assert events[2].startswith("event: penstock-explain\ndata: {")
    told = json.loads(events[2].partition("data: ")[2])
    assert told["requests"][0]["responses"] == 2
