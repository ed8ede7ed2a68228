"""The rules of prometheus-adapter that the autoscaler asks, on series, by Prometheus' promtool."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployment.chart import CHART
from programs.places import find

_PROMTOOL = find("promtool")
_RULES = {
    rule["name"]["as"]: rule
    for rule in yaml.safe_load((CHART.parent / "prometheus-adapter.yaml").read_text())["rules"][
        "custom"
    ]
}
_PODS = 'namespace="models",pod=~"busy|idle"'

pytestmark = pytest.mark.needs(
    "promtool", "" if _PROMTOOL else "there is no promtool: `make tools` says why"
)


def _expression(metric: str) -> str:
    """What the adapter asks Prometheus for two pods."""
    query: str = _RULES[metric]["metricsQuery"]
    return query.replace("<<.LabelMatchers>>", _PODS).replace("<<.GroupBy>>", "pod")


def _series(name: str, pod: str, model: str, values: str) -> dict[str, str]:
    labels = f'namespace="models",pod="{pod}",model="{model}",version="1"'
    return {"series": f"{name}{{{labels}}}", "values": values}


def _check(
    folder: Path, series: list[dict[str, str]], expected: dict[str, dict[str, float]]
) -> str:
    """Let promtool compare metrics of pods, five minutes after the series began."""
    questions = [
        {
            "expr": _expression(metric),
            "eval_time": "5m",
            "exp_samples": [
                {"labels": f'{{pod="{pod}"}}', "value": value} for pod, value in pods.items()
            ],
        }
        for metric, pods in expected.items()
    ]
    tests: dict[str, Any] = {
        "interval": "15s",
        "input_series": series,
        "promql_expr_test": questions,
    }
    file = folder / "tests.yaml"
    file.write_text(json.dumps({"tests": [tests]}))
    done = subprocess.run(
        [_PROMTOOL, "test", "rules", file], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.contract("K-09")
def test_queue_time_is_a_mean_over_the_models_of_a_pod(tmp_path: Path) -> None:
    """Of two models, 15 requests that waited 50 us and 45 that waited 10, again and again."""
    queue, success = "nv_inference_queue_duration_us", "nv_inference_request_success"
    series = [
        _series(queue, "busy", "slow", "0+750x20"),
        _series(success, "busy", "slow", "0+15x20"),
        _series(queue, "busy", "fast", "0+450x20"),
        _series(success, "busy", "fast", "0+45x20"),
        _series(queue, "idle", "slow", "7+0x20"),
        _series(success, "idle", "slow", "7+0x20"),
    ]
    answer = _check(tmp_path, series, {"avg_time_queue_us": {"busy": 20, "idle": 0}})
    assert "SUCCESS" in answer


def test_waiting_requests_are_added_up(tmp_path: Path) -> None:
    series = [
        _series(name, pod, model, f"{count}+0x20")
        for name in ("nv_inference_pending_request_count", "penstock_llm_waiting_requests")
        for pod, model, count in (("busy", "one", 3), ("busy", "two", 4), ("idle", "one", 0))
    ]
    counts: dict[str, float] = {"busy": 7, "idle": 0}
    answer = _check(tmp_path, series, {"pending_requests": counts, "llm_waiting_requests": counts})
    assert "SUCCESS" in answer


def test_wrong_value_is_noticed(tmp_path: Path) -> None:
    """What the tests above are worth."""
    series = [_series("nv_inference_pending_request_count", "idle", "one", "1+0x20")]
    assert "FAILED" in _check(tmp_path, series, {"pending_requests": {"idle": 2}})


@pytest.mark.parametrize("metric", _RULES)
def test_series_that_a_rule_looks_for_are_those_that_it_asks(metric: str) -> None:
    name, labels = _RULES[metric]["seriesQuery"].split("{")
    assert name in _RULES[metric]["metricsQuery"]
    assert labels == 'namespace!="",pod!=""}'
